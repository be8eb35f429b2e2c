"""The forms a value can have, beyond what the table of settings shows of them."""

import pytest

from runtime import options


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("127.0.0.1:9101", ("127.0.0.1", 9101)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::]:9101", ("::", 9101)),
        ("[2001:db8::1]:80", ("2001:db8::1", 80)),
    ],
)
def test_a_host_and_a_port_are_told_apart(text: str, value: tuple[str, int]) -> None:
    assert options.host_and_port(text) == value


@pytest.mark.parametrize(
    "text", ["", "9101", ":9101", "h", "h:", "h:0", "h:65536", "h:-1", "h:٣", "::1:80", "[::1]", "[h]:80"]
)
def test_what_is_no_host_and_port_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be an address and a port, as 127\.0\.0\.1:9101$"):
        options.host_and_port(text)


@pytest.mark.parametrize(("text", "value"), [("on", True), ("off", False), ("On", True), ("OFF", False)])
def test_a_switch_is_on_or_off(text: str, value: bool) -> None:
    assert options.switch(text) is value


@pytest.mark.parametrize("text", ["", "true", "false", "yes", "no", "1", "0", "on off", "ον"])
def test_a_switch_is_nothing_else_so_that_nobody_guesses_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be on or off$"):
        options.switch(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("192.0.2.7", ("192.0.2.7/32",)),
        ("198.51.100.0/24", ("198.51.100.0/24",)),
        ("198.51.100.0/255.255.255.0", ("198.51.100.0/24",)),
        ("2001:DB8::1", ("2001:db8::1/128",)),
        ("0.0.0.0/0,::/0", ("0.0.0.0/0", "::/0")),
    ],
)
def test_networks_are_read_in_one_spelling(text: str, value: tuple[str, ...]) -> None:
    assert options.networks(text) == value


def test_an_address_inside_a_network_stands_for_the_whole_network() -> None:
    assert options.networks("198.51.100.77/24") == ("198.51.100.0/24",)


def test_networks_keep_their_order_whatever_space_and_commas_are_around_them() -> None:
    assert options.networks(" 203.0.113.9 ,, 192.0.2.0/24,\t2001:db8::/32 ,") == (
        "203.0.113.9/32",
        "192.0.2.0/24",
        "2001:db8::/32",
    )


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_no_networks_are_none(text: str) -> None:
    assert options.networks(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "localhost",
        "10",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.007",
        "192.0.2.7/33",
        "192.0.2.7/-1",
        "192.0.2.7/",
        "2001:db8::/129",
        "2001:db8::g",
        "192.0.2.7:8080",
        "[2001:db8::1]",
        "192.0.2.7;192.0.2.8",
        "192.0.2.7, crawler.example",
    ],
)
def test_what_is_no_network_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be addresses or networks, as 192\.0\.2\.7, 198\.51\.100\.0/24$"):
        options.networks(text)
