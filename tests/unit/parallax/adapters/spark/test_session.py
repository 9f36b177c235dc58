"""What Spark is started with: options, task slots, a home, a Java."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from pyspark import SparkConf

from parallax.adapters.spark.jvm import INSTALLED, unpacked_spark_home
from parallax.adapters.spark.session import (
    SPARE_SLOTS,
    SessionSettings,
    StartingSession,
    check_slots,
    find_java_home,
    hidden_options,
    is_local,
    java_home_for_spark,
    local_slots,
    session_options,
)
from parallax.errors import ConfigError, PreflightError
from parallax.runtime.deadline import Deadline

SECRET = "hunter2"  # noqa: S105 - of a test


class TestSession:
    def test_the_local_master_has_a_slot_for_every_lease_and_some_to_spare(self) -> None:
        assert SessionSettings(leases=4).master == "local[6, 8]"
        assert local_slots("local[6, 8]") == 4 + SPARE_SLOTS
        assert SessionSettings(4, "spark://h:1").master == "spark://h:1"

    @pytest.mark.parametrize(
        ("master", "slots"),
        [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("spark://h:7077", None), ("yarn", None)],
    )
    def test_slots_of_a_master(self, master: str, slots: int | None) -> None:
        assert local_slots(master) == slots
        assert is_local(master) == (slots is not None)

    def test_no_lease_is_ever_held_twice_on_purpose(self) -> None:
        options = session_options(SessionSettings(leases=1))
        assert options["spark.speculation"] == "false"
        assert options["spark.ui.enabled"] == "false"
        assert options["spark.driver.bindAddress"] == "127.0.0.1"

    @pytest.mark.parametrize("master", [None, "spark://h:7077"])
    def test_workers_keep_few_heaps(self, master: str | None) -> None:
        options = session_options(SessionSettings(1, master, insecure=True))
        assert options["spark.executorEnv.MALLOC_ARENA_MAX"] == "2"

    def test_a_cluster_s_driver_is_not_bound_to_the_loopback_interface(self) -> None:
        options = session_options(SessionSettings(1, "spark://h:7077"))
        assert "spark.driver.bindAddress" not in options

    def test_executors_of_a_cluster_that_are_silent_are_given_up(self) -> None:
        ours, clusters = (session_options(SessionSettings(1, of)) for of in (None, "spark://h:7077"))
        assert "spark.storage.blockManagerHeartbeatTimeoutMs" in ours
        assert "spark.storage.blockManagerHeartbeatTimeoutMs" not in clusters
        assert clusters["spark.network.timeout"] == "40s"

    def test_a_cluster_is_authenticated_and_encrypted(self) -> None:
        settings = SessionSettings(1, "spark://h:7077", secret=SECRET)
        options = session_options(settings)
        assert options["spark.authenticate"] == options["spark.network.crypto.enabled"] == "true"
        assert options["spark.io.encryption.enabled"] == "true"
        assert options["spark.network.crypto.saslFallback"] == "false"  # DIGEST-MD5
        assert hidden_options(settings) == {"spark.authenticate.secret": SECRET}
        assert SECRET not in f"{settings} {options}"

    def test_a_cluster_without_a_secret_is_refused_unless_told(self) -> None:
        with pytest.raises(ConfigError, match=r"spark_master spark://h:1: .*replicator\.spark_secret_file"):
            StartingSession(SessionSettings(1, "spark://h:1"))
        insecure = SessionSettings(1, "spark://h:1", insecure=True)
        assert hidden_options(insecure) == {}
        assert "spark.authenticate" not in session_options(insecure)

    @pytest.mark.parametrize("master", ["yarn", "k8s://https://h:443", "local[2]"])
    def test_others_need_none(self, master: str) -> None:
        settings = SessionSettings(1, master)
        assert hidden_options(settings) == {}
        assert ("spark.authenticate" in session_options(settings)) == (master != "local[2]")

    def test_the_secret_is_no_argument_of_the_jvm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[tuple[str, str]] = []

        def launch(conf: SparkConf) -> None:
            told.extend(conf.getAll())
            raise RuntimeError("launched")

        monkeypatch.setattr("parallax.adapters.spark.session.SparkContext._ensure_initialized", launch)
        monkeypatch.setattr("pyspark.core.context.SparkContext._active_spark_context", None)
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
            monkeypatch.setenv(name, os.environ.get(name, sys.executable))
        monkeypatch.setattr(os, "environ", {**os.environ, "JAVA_HOME": str(find_java_home())})
        with pytest.raises(RuntimeError, match="launched"):
            StartingSession(SessionSettings(1, "spark://h:1", secret=SECRET)).session()
        assert ("spark.authenticate", "true") in told
        assert SECRET not in str(told)

    def test_a_start_adds_no_variable_beside_other_threads_and_leaves_java_s_own_home(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
        monkeypatch.setattr(os, "environ", environment | {"JAVA_HOME": str(find_java_home())})
        before: set[str] = set()
        ended: list[object] = []

        def launch(conf: SparkConf) -> None:  # noqa: ARG001 - Spark's signature
            before.update(os.environ)
            os.environ |= {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}
            raise RuntimeError("launched")

        monkeypatch.setattr("parallax.adapters.spark.session.SparkContext._ensure_initialized", launch)
        monkeypatch.setattr("parallax.adapters.spark.session.SparkContext._gateway", "the gateway")
        monkeypatch.setattr("parallax.adapters.spark.session._end_jvm", ended.append)
        starting = StartingSession(SessionSettings(1))
        with pytest.raises(RuntimeError, match="launched"):
            starting.session()
        starting.close()
        assert ended == ["the gateway"]
        assert set(os.environ) == before
        assert os.environ["MALLOC_ARENA_MAX"] == "2"  # the JVM's
        assert os.environ["JAVA_HOME"] == str(find_java_home())

    def test_a_start_that_is_closed_meanwhile_goes_no_further(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "environ", {**os.environ, "JAVA_HOME": str(find_java_home())})
        goes_on, ended = threading.Event(), list[object]()
        launching = "parallax.adapters.spark.session.SparkContext._ensure_initialized"
        monkeypatch.setattr(launching, lambda conf: goes_on.wait(30))  # noqa: ARG005 - as above
        monkeypatch.setattr("parallax.adapters.spark.session.SparkContext._gateway", "the gateway")
        monkeypatch.setattr("parallax.adapters.spark.session._end_jvm", ended.append)
        starting = StartingSession(SessionSettings(1))
        closing = threading.Thread(target=starting.close)
        closing.start()
        while not starting._closed.is_set():
            closing.join(0.01)
        goes_on.set()
        closing.join(30)
        assert ended == ["the gateway"]
        with pytest.raises(CancelledError):
            starting.session()

    def test_slots_are_waited_for(self) -> None:
        seen = iter([0, 2, 4])
        assert check_slots(lambda: next(seen), 4, Deadline.after_ms(60_000), sleep=lambda _s: None) == 4

    def test_too_few_slots_are_refused_at_the_deadline(self) -> None:
        with pytest.raises(PreflightError, match="4 leases need as many task slots, but Spark has 3"):
            check_slots(lambda: 3, 4, Deadline.after_ms(0), sleep=lambda _s: None)


def imported_by_a_worker_of(home: Path) -> str:
    """Where PySpark comes from on the path that Spark gives to a Python process."""
    archives = [home / "python" / "lib" / name for name in ("pyspark.zip", "py4j-src.zip")]
    return subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__file__)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_workers_import_the_installed_package() -> None:
    assert "pyspark.zip" in imported_by_a_worker_of(INSTALLED)
    assert imported_by_a_worker_of(unpacked_spark_home()) == str(INSTALLED / "__init__.py")


def test_a_home_has_what_the_launcher_needs_and_is_made_once() -> None:
    home = unpacked_spark_home()
    assert os.access(home / "bin" / "spark-submit", os.X_OK)
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert unpacked_spark_home() == home


def test_java_home_comes_first(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    assert find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) == tmp_path.resolve()


def test_without_any_other_the_wheel_s_java_is_taken() -> None:
    assert (find_java_home({"PATH": ""}) / "bin" / "java").is_file()


def test_a_java_that_says_what_it_was_built_with_is_not_started_to_ask(tmp_path: Path) -> None:
    home = java_that_lists(tmp_path, "would be asked")
    modules = "java.base jdk.incubator.vector"
    (home / "release").write_text(f'JAVA_VERSION="17"\nMODULES="{modules}"\n', encoding="utf-8")
    with java_home_for_spark(home) as launched:
        assert launched == home
    (home / "release").write_text('MODULES="java.base jdk.incubator.vector.more"\n', encoding="utf-8")
    with java_home_for_spark(home) as launched:
        assert launched != home


def java_that_lists(folder: Path, modules: str) -> Path:
    """A home whose `java` lists these modules, and otherwise says how it was called."""
    script = folder / "a home" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-modules ]; then echo "{modules}"; else printf "%s\\n" "$@"; fi\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script.parent.parent


def test_a_java_with_every_module_is_started_as_it_is(tmp_path: Path) -> None:
    home = java_that_lists(tmp_path, "java.base@17 jdk.incubator.vector@17")
    with java_home_for_spark(home) as chosen:
        assert chosen == home


@pytest.mark.parametrize("last", ["org.apache.Main", "an argument  with spaces"])
def test_a_java_without_the_vector_module_is_not_asked_for_it(tmp_path: Path, last: str) -> None:
    home = java_that_lists(tmp_path, "java.base@17")
    with java_home_for_spark(home) as chosen:
        called = subprocess.run(
            [
                chosen / "bin" / "java",
                "-Xmx1g",
                "--add-modules=jdk.incubator.vector",
                "--add-opens=a/b=c",
                last,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    assert called.stdout.splitlines() == ["-Xmx1g", "--add-opens=a/b=c", last]
    assert not chosen.exists()
