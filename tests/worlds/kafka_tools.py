"""Kafka's own command-line tools, as foreign clients."""

from __future__ import annotations

from lab.stack.artifacts import Report, fetch_jars
from lab.stack.java import find_java
from lab.stack.settings import QUICK_JVM_OPTIONS
from lab.stack.versions import load_versions

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def kafka_tool(
    main_class: str, *arguments: str, report: Report = lambda _line: None, heap_mib: int = 128
) -> list[str]:
    """The command that runs one of Kafka's tools.

    Args:
        main_class: For example `CONSOLE_PRODUCER`.
        arguments: The tool's own.
        report: Gets progress lines if the jars must be fetched first.
        heap_mib: Heap of the tool.

    Raises:
        JavaNotFoundError: There is no Java.
        ArtifactError: The jars could not be fetched.
    """
    java = find_java()
    jars = fetch_jars(load_versions().kafka, java, report=report)
    heap = f"-Xmx{heap_mib}m"
    return [str(java.executable), heap, *QUICK_JVM_OPTIONS, "-cp", f"{jars}/*", main_class, *arguments]
