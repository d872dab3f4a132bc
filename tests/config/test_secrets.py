from __future__ import annotations

from pathlib import Path

import pytest

from hawk.config.secrets import check_secrets, gather_secrets, read_secrets_file
from hawk.errors import ConfigError, SecretsNeededError, UsageError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "secrets.env"
    path.write_text(text)
    return path


def test_dotenv_file_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "# comment\n\nA=1\nexport B = two words # and a comment\nC='$x \\n # kept'\n"
        'D="tab\\there \\"quoted\\"" # comment\nE="first\nsecond"\nF=\nG=a#b\nH=k=v\n',
    )
    assert read_secrets_file(path) == {
        "A": "1",
        "B": "two words",
        "C": "$x \\n # kept",
        "D": 'tab\there "quoted"',
        "E": "first\nsecond",
        "F": "",
        "G": "a#b",
        "H": "k=v",
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [("A=1\nhunter2\n", 2), ("A=1\n\n2B=hunter2\n", 3), ("A='hunter2\n\n", 1), ("A=1\nB='a'hunter2\n", 2)],
)
def test_malformed_file_names_file_and_line_and_no_value(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"secrets\.env:{line}: ") as caught:
        read_secrets_file(write(tmp_path, text))
    assert "hunter2" not in str(caught.value.envelope())


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.env: The secrets file can't be read: No such file"):
        read_secrets_file(tmp_path / "none.env")
    (tmp_path / "bin.env").write_bytes(b"A=\xff\xfe")
    with pytest.raises(ConfigError, match=r"bin\.env: This is not a text file"):
        read_secrets_file(tmp_path / "bin.env")


def test_files_win_over_the_environment_and_later_files_over_earlier(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("A=1\nB=1\n")
    second.write_text("B=2\n")
    found = gather_secrets(
        ["A", "D"], names=["C"], files=[first, second], environ={"A": "e", "C": "e", "D": "e", "OTHER": "e"}
    )
    assert found == {"A": "1", "B": "2", "C": "e", "D": "e"}


def test_missing_secrets_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(SecretsNeededError) as caught:
        gather_secrets(["A", "B", "A"], names=["C"], files=[], environ={"B": "x", "C": ""})
    assert caught.value.fields["names"] == ["A", "C"]
    assert "--secret A --secret C" in caught.value.render()
    with pytest.raises(SecretsNeededError):
        check_secrets(["A"], {})
    assert check_secrets(["A"], {"A": "1"}) == {"A": "1"}


def test_a_value_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        gather_secrets([], names=["KEY=hunter2"], files=[], environ={})
    assert "hunter2" not in caught.value.render()
