"""The command line as a person meets it: help, mistakes, Ctrl-C, and pipes whose reader has gone."""

import os
import signal
import socket
import subprocess
from importlib import metadata
from pathlib import Path

import click
import pytest

from cli.main import novel as command_line
from tests.conftest import NovelCommand, clean_environ, novel_executable

STOPPED_BY_CTRL_C = 130


def commands(group: click.Group, *above: str) -> list[tuple[str, ...]]:
    """Every command there is, as words, groups included."""
    found = []
    for name, command in group.commands.items():
        found.append((*above, name))
        if isinstance(command, click.Group):
            found += commands(command, *above, name)
    return found


COMMANDS = commands(command_line)


def test_there_are_the_commands_that_the_contract_names() -> None:
    promised = {"up", "serve", "migrate", "schema", "schema status", "schema check", "schema drop", "doctor"}
    promised |= {"push", "keys", "keys create", "keys list", "keys revoke", "keys rotate"}
    assert promised <= {" ".join(words) for words in COMMANDS}


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_every_command_with_what_it_does(novel: NovelCommand, arguments: tuple[str, ...]) -> None:
    done = novel(*arguments)
    assert done.stderr == ""
    assert done.returncode == (0 if arguments else 2)
    listed = dict(line.split(maxsplit=1) for line in done.stdout.partition("Commands:\n")[2].splitlines())
    assert set(listed) == set(command_line.commands)
    assert "NOVEL_*" in done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_without_any_setting(novel: NovelCommand, words: tuple[str, ...]) -> None:
    done = novel(*words, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    usage, _, explanation = done.stdout.partition("\n\n")
    assert usage.startswith(f"Usage: novel {' '.join(words)} ")
    assert explanation.partition("Options:")[0].strip()


def test_every_option_is_explained() -> None:
    for words in COMMANDS:
        command: click.Command = command_line
        for word in words:
            assert isinstance(command, click.Group)
            command = command.commands[word]
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"novel {' '.join(words)} {option.opts[0]}"


def test_version(novel: NovelCommand) -> None:
    done = novel("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"novel, version {metadata.version('novel-service')}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("serv",), "No such command 'serv'"),
        (("schema", "chekc"), "No such command 'chekc'"),
        (("--prot",), "No such option '--prot'"),
        (("serve", "--prot", "1"), "'--port'"),
        (("serve", "worker"), "'worker' is not one of 'ingest', 'readapi', 'admin', 'all'"),
        (("serve", "--port", "http"), "Invalid value for '--port': 'http' is not a valid integer"),
        (("serve", "--port", "0"), "Invalid value for '--port': 0 is not in the range 1<=x<=65535"),
        (("serve", "--processes", "0"), "Invalid value for '--processes': 0 is not in the range 1<=x<=64"),
        (("doctor", "surplus"), "unexpected extra argument (surplus)"),
        (("up", "--data-dir"), "'--data-dir' requires an argument"),
    ],
)
def test_a_mistyped_command_line_is_answered_kindly(
    novel: NovelCommand, arguments: tuple[str, ...], complaint: str
) -> None:
    done = novel(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_a_misspelt_setting_is_pointed_out(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("schema", "status", **environ, NOVEL_TABEL_PREFIX="blog7_")
    assert done.returncode == 0
    assert done.stderr == ("novel: warning: unknown variable NOVEL_TABEL_PREFIX (did you mean NOVEL_TABLE_PREFIX?)\n")


def test_a_bad_setting_is_one_line_that_names_it(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("serve", **environ, NOVEL_DATABASE_POOL_SIZE="many")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("novel: NOVEL_DATABASE_POOL_SIZE ")


def test_ctrl_c_says_so_and_ends_with_130() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a server that never says a word
        silent.settimeout(60)
        url = f"mysql://u:p@127.0.0.1:{silent.getsockname()[1]}/novel"
        waiting = subprocess.Popen(
            [novel_executable(), "migrate"],
            env=clean_environ({"NOVEL_DATABASE_URL": url}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()
        waiting.send_signal(signal.SIGINT)
        said, complained = waiting.communicate(timeout=60)
        connection.close()
    assert waiting.returncode == STOPPED_BY_CTRL_C
    assert said == ""
    assert complained.strip() == "novel: stopped."


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--version",), ("schema", "status"), ("doctor",)])
def test_a_reader_that_has_gone_is_no_reason_to_complain(environ: dict[str, str], arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_into(writing, environ, *arguments)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", [(), ("--help",), ("schema", "status")])
def test_a_full_disk_is_one_line(environ: dict[str, str], arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_into(full.fileno(), environ, *arguments)
    assert done.returncode == 1
    assert done.stderr == "novel: No space left on device.\n"


def test_a_folder_that_cannot_be_made_is_one_line(novel: NovelCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = novel("up", "--data-dir", str(tmp_path / "file" / "below"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"novel: {tmp_path}/file/below: Not a directory.\n"


def run_into(descriptor: int, variables: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [novel_executable(), *arguments],
        env=clean_environ(variables),
        stdin=subprocess.DEVNULL,
        stdout=descriptor,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
