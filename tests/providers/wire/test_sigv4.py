"""Signatures, against ones another implementation made of the same requests and the published example."""

from typing import Any

import pytest

from bridle.providers.sigv4 import signed_headers

WHO: dict[str, Any] = {"access_key": "AKIDEXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
HOST = "https://bedrock-runtime.us-east-1.amazonaws.com"
PROFILE = "/model/arn:aws:bedrock:us-east-1:123456789012:inference-profile%2Fus.x-v1:0/converse-stream"


@pytest.mark.parametrize(
    ("url", "body", "token", "headers", "names", "signature"),
    [
        (
            f"{HOST}/model/us.x.y-v1:0/converse", b'{"messages":[]}', "",
            (("content-type", "application/json"),), "content-type;host;x-amz-date",
            "76dbb69cd88b5425d5e6f8891a54796649d5e26869ac9919c6248117247cae77",
        ),
        (
            HOST + PROFILE, b"{}", "TOKEN==", (), "host;x-amz-date;x-amz-security-token",
            "0cfd806196f9c2c42aa7da489cc962a087d6d58f859472a653a8632882bc3eac",
        ),
        (
            "https://host.example:8443/a//b/../c/?b=2&a=1&a=0&e=&sp=a%20b&p=%2F~", b"", "", (), "host;x-amz-date",
            "3e7cc3116735c93f9419966a7ce22bd734896aa5a8c2b695559500ea11d8d091",
        ),
    ],
)  # fmt: skip
def test_signatures_are_those_the_clouds_own_library_makes(url, body, token, headers, names, signature):
    made = signed_headers(
        "POST", url, body, service="bedrock", region="us-east-1", now=1794700800.25,
        session_token=token, headers=headers, **WHO,
    )  # fmt: skip
    scope = "AKIDEXAMPLE/20261115/us-east-1/bedrock/aws4_request"
    expected = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    assert dict(made) == {
        "x-amz-date": "20261115T000000Z",
        **({"x-amz-security-token": token} if token else {}),
        "authorization": expected,
    }


def test_the_published_example():
    made = signed_headers(
        "get",
        "https://example.amazonaws.com/",
        b"",
        service="service",
        region="us-east-1",
        now=1440938160,
        **WHO,
    )
    signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    assert dict(made)["authorization"].endswith(f"SignedHeaders=host;x-amz-date, Signature={signature}")


def test_everything_that_must_arrive_unchanged_is_signed():
    asked = {
        "method": "POST",
        "url": f"{HOST}/a?b=1",
        "body": b"x",
        "service": "s",
        "region": "r",
        "now": 0.0,
        **WHO,
    }
    changes = (
        {"method": "PUT"}, {"url": f"{HOST}/b?b=1"}, {"url": f"{HOST}/a?b=2"}, {"url": "https://else/a?b=1"},
        {"body": b"y"}, {"service": "t"}, {"region": "q"}, {"now": 86_400.0}, {"secret_key": "other"},
        {"session_token": "t"}, {"headers": (("content-type", "x"),)},
    )  # fmt: skip
    made = {dict(signed_headers(**{**asked, **change}))["authorization"] for change in ({}, *changes)}
    assert len(made) == 1 + len(changes)
    assert all(WHO["secret_key"] not in proof for proof in made)


def test_a_blank_more_or_a_usual_port_makes_no_difference():
    plain = {"body": b"", "service": "s", "region": "r", "now": 0.0, **WHO}
    one = signed_headers("POST", "https://h/a", headers=(("X-A", "b c"),), **plain)
    assert one == signed_headers("POST", "https://h:443/a", headers=(("x-a", "  b   c "),), **plain)
