import pytest

from cli.pushing import addresses


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Đấu Phá Thương Khung", "dau-pha-thuong-khung"),
        ("Đế Bá", "de-ba"),  # decomposed
        ("ĐẠI  CHÚA -- TỂ!", "dai-chua-te"),
        ("Re:Zero – Bắt đầu lại ở thế giới khác (2)", "re-zero-bat-dau-lai-o-the-gioi-khac-2"),
        ("斗破苍穹", ""),
        ("Ｆｕｌｌ ½", "full-1-2"),
    ],
)
def test_titles_become_slugs(title: str, slug: str) -> None:
    assert addresses.slug(title) == slug


def test_a_slug_is_no_longer_than_a_column_and_ends_in_a_letter() -> None:
    assert addresses.slug("ab " * 100 + "c") == ("ab-" * 64)[:191]


def test_a_slug_of_chinese_says_nothing() -> None:
    assert not addresses.keeps_letters("斗破苍穹 2")
    assert addresses.keeps_letters("Đấu Phá – 2")


@pytest.mark.parametrize(
    ("url", "domain", "identifier"),
    [
        ("https://www.novelhall.com/Reverend-Insanity-179/", "novelhall.com", "Reverend-Insanity-179"),
        ("http://truyen.example:8080/doc/abc/chuong-1.html", "truyen.example", "doc/abc/chuong-1.html"),
        ("https://a.example/book?id=7&x=1#c2", "a.example", "book?id=7&x=1#c2"),
        ("https://A.example", "a.example", "a.example"),
    ],
)
def test_addresses_name_a_site_and_a_page_of_it(url: str, domain: str, identifier: str) -> None:
    assert addresses.domain(url) == domain
    assert addresses.identifier(url, longest=191) == identifier


def test_long_addresses_stay_apart() -> None:
    ends = [addresses.identifier(f"https://a.example/{'x' * 300}/{number}", longest=191) for number in (1, 2)]
    assert ends[0] != ends[1]
    assert {len(end) for end in ends} == {191}


@pytest.mark.parametrize("url", ["", "nonsense", "file:///home/me", "http://[::"])
def test_what_is_no_address_of_a_site_is_told(url: str) -> None:
    with pytest.raises(ValueError, match="no web address"):
        addresses.domain(url)
