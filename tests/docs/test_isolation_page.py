from tests.escape.write_isolation import PAGE, render_page


def test_the_page_about_isolation_is_the_list_that_the_escape_suite_runs() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run `make isolation`"
