"""Words as they stand in CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.table import Table, read_table

ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, White, Male, 0, 40, Cuba, <=50K",
    "50, Private, 83311, ?, 13, Divorced, Sales, White, Male, 0, 13, Cuba, >50K",
    "38, ?, 215646, HS-grad, 9, Divorced, Sales, Black, Male, 0, 40, Cuba, <=50K",
)


def written(folder: Path, *lines: str) -> Path:
    file = folder / "a.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def read(folder: Path, *lines: str) -> Table:
    table, problems = read_table(written(folder, *lines))
    assert problems == []
    return table


def refused(file: Path) -> DataError:
    with pytest.raises(DataError) as raised:
        read_table(file)
    assert str(file) in raised.value.message
    return raised.value


@pytest.mark.parametrize("row", ['20,"0.5,a', '20,0.5,"a', '20,0.5,"', '"20,0.5,a', '20,"0""5,a'])
@pytest.mark.parametrize("num_after", [0, 1, 979])
def test_a_quotation_that_is_not_closed_is_refused_with_its_line(
    tmp_path: Path, row: str, num_after: int
) -> None:
    rows = [f"{index},0.5,a" for index in range(20 + num_after)]
    rows.insert(20, row)
    file = written(tmp_path, "x,y,kind", *rows)
    error = refused(file)
    assert f"{file}: line 22: a quotation begins" in error.message
    assert error.advice == "close the quotation mark"
    file.write_text(file.read_text().rstrip("\n"))
    assert "line 22: a quotation begins" in refused(file).message


def test_the_line_is_that_of_the_quotation_not_of_its_row(tmp_path: Path) -> None:
    file = written(tmp_path, "x,y,kind", "1,2,a", '"1', '2","3', "4,a", "5,6,b")
    assert "line 4: a quotation begins" in refused(file).message
    assert "line 1: a quotation begins" in refused(written(tmp_path, '"x,y,kind', "1,2,a")).message


def test_quotations_that_are_closed(tmp_path: Path) -> None:
    table = read(tmp_path, "x,y,kind", '1,"one', "", 'two, ""three""",a', '2,"a"b,b', '3,5" long,"c"')
    assert table.rows == [["1", 'one\n\ntwo, "three"', "a"], ["2", "ab", "b"], ["3", '5" long', "c"]]
    assert table.lines == [2, 5, 6]
    file = tmp_path / "b.csv"
    file.write_text('x,kind\n1,"a"')
    assert read_table(file)[0].rows == [["1", "a"]]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas(tmp_path: Path, separator: str) -> None:
    row = separator.join(["3,94", "-0,60", ",5", "1,5e-3", "a,b", "1,2,3"])
    table = read(tmp_path, separator.join("abcdef"), row)
    assert table.rows == [["3.94", "-0.60", ".5", "1.5e-3", "a,b", "1,2,3"]]
    assert read(tmp_path, "a,b", '"3,94",x').rows == [["3,94", "x"]]


def test_separators_inside_of_quotation_marks_do_not_count(tmp_path: Path) -> None:
    table = read(tmp_path, '"len, cm";"wid, cm";"of, the, kind"', "1;2;a")
    assert table.names == ("len, cm", "wid, cm", "of, the, kind")
    assert read(tmp_path, '"a;\n;b",c', "1,2").names == ("a;\n;b", "c")


@pytest.mark.parametrize("lines", [("5,0,0,0,12,12,0", "0,0,0,3,9,0,0"), ADULT, ADULT[:2]])
def test_rows_without_a_header_are_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    error = refused(written(tmp_path, *lines))
    assert "its first line is data, not a header" in error.message
    assert error.advice == "put a line with the names of the columns first"


@pytest.mark.parametrize(
    "lines",
    [
        ("inf,nan,kind", "1,2,a"),
        ("0,1,color,shape,kind", "5,3,red,round,a"),
        ("name,town,2,1,kind", "x,y,3,4,5"),  # the column `kind` has numbers, and no number as its name
        ("name,town,place,2,1", "x,y,z,red,blue"),
    ],
)
def test_names_that_look_like_numbers(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert read(tmp_path, *lines).names == tuple(lines[0].split(","))


@pytest.mark.parametrize("line", ["sep=;\n", '"sep=;"\r\n', "SEP=;\n"])
def test_excels_line_about_the_separator_is_not_the_header(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.csv").write_text(f"{line}width;kind,x\n3,5;a\n4;b\n5;c;d\n", newline="")
    table, problems = read_table(tmp_path / "a.csv")
    assert table.names == ("width", "kind,x")
    assert list(table.rows) == [["3.5", "a"], ["4", "b"]]
    assert list(table.lines) == [3, 4]
    assert [problem.at for problem in problems] == ["line 5"]


def test_an_empty_column_after_the_last_comma_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("width,kind,\n3,a,\n4,b,\n")
    table, problems = read_table(tmp_path / "a.csv")
    assert (table.names, list(table.rows), problems) == (("width", "kind"), [["3", "a"], ["4", "b"]], [])
    (tmp_path / "a.csv").write_text("width,kind,\n3,a,\n4,b,note\n")
    with pytest.raises(DataError, match="column 3 has no name"):
        read_table(tmp_path / "a.csv")
