"""Model strings, keys and the tables behind them."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle.providers.catalogue import auth_headers, choose_default_model, find_key, find_model, known_models
from bridle.providers.tables import NEUTRAL
from bridle.values.errors import MissingKey, MisuseError, UnknownModel
from bridle.values.model import Abilities, Endpoint
from bridle.values.usage import Usage


def refusal(string, **environ):
    with pytest.raises(UnknownModel) as caught:
        find_model(string, environ=environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_vendor_and_a_model():
    model = find_model("anthropic:claude-sonnet-5-5", environ={})
    assert model.name == "anthropic:claude-sonnet-5-5"
    assert model.endpoint == Endpoint(
        name="anthropic",
        family="anthropic",
        base_url="https://api.anthropic.com",
        auth="bearer",
        key_env=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        base_url_env=("ANTHROPIC_BASE_URL",),
        headers=(("anthropic-version", "2026-10-21"),),
        reasoning="signed",
    )
    assert model.abilities == Abilities(
        context_tokens=1_000_000,
        output_tokens=128_000,
        output_limited=True,
        thinking=("adaptive", "between_tools"),
        efforts=("low", "medium", "high", "xhigh", "max"),
        bound_thinking=True,
        forced_tools=False,
        choice_in_prefix=("forced", "none", "parallel"),
        unforced_while=("enabled",),
        structured_output="native",
        sampling=False,
        image_bytes_max=5_242_880,
        videos=False,
        audio=False,
        cache_marks=4,
        automatic_cache=True,
        mode_efforts=(("between_tools", ("low", "medium", "high")),),
        system_messages=True,
        hosted=(
            ("web_search", ("allowed_domains", "blocked_domains", "max_uses")),
            ("web_fetch", ("allowed_domains", "blocked_domains", "max_uses")),
            ("code_execution", ()),
            ("remote_mcp", ("allowed_tools", "authorization")),
        ),
        deferred_tools=True,
        prefill=False,
        cache="marks",
        cache_explained=True,
        cache_minimum_tokens=512,
        thinking_default="adaptive",
        effort_default="high",
        display_default="omitted",
        compaction=True,
    )


def test_a_price_is_exact_and_its_tiers_price_the_whole_request():
    haiku = find_model("anthropic:claude-haiku-5-5", environ={}).price
    small = Usage(input=50_000, cache_read=50_000, output=1_000)
    assert haiku.cost(small) == Decimal("0.0060")
    large = Usage(input=50_001, cache_read=50_000, output=1_000)
    assert haiku.cost(large) == Decimal("0.0300005")


@pytest.mark.parametrize(
    ("string", "output", "thinking", "forced", "efforts", "write_1h"),
    [
        ("claude-fable-5-2", 40, "adaptive", False, 5, 16),
        ("claude-mythos-5-1", 50, "adaptive", False, 5, 20),
        ("claude-mythos-5", 50, "adaptive", True, 5, 20),
        ("claude-opus-5-5", 20, "adaptive", False, 5, 8),
        ("claude-opus-4-8", 25, "adaptive disabled", True, 5, 10),
        ("claude-opus-4-6", 25, "adaptive enabled disabled", True, 4, 10),
        ("claude-opus-4-5", 25, "enabled disabled", True, 3, 10),
        ("claude-sonnet-5", 10, "adaptive disabled", True, 5, 4),
        ("claude-sonnet-4-6", 15, "adaptive enabled disabled", True, 4, 6),
        ("claude-sonnet-4-5", 15, "enabled disabled", True, 0, 6),
        ("claude-haiku-4-5", 5, "enabled disabled", True, 0, 2),
    ],
)
def test_what_a_model_inherits_and_what_it_has_of_its_own(
    string, output, thinking, forced, efforts, write_1h
):
    model = find_model(f"anthropic:{string}", environ={})
    assert model.price.tiers[0].output == output
    assert model.price.tiers[0].cache_write_1h == write_1h
    assert " ".join(model.abilities.thinking) == thinking
    assert model.abilities.forced_tools is forced
    assert len(model.abilities.efforts) == efforts


def test_every_row_is_whole():
    models = known_models()
    assert len(models) == len({model.name for model in models})
    for model in models:
        found = find_model(f"{model.name}@http://h", environ={})
        assert (found.abilities, found.price) == (model.abilities, model.price)
        assert model.abilities.output_tokens <= model.abilities.context_tokens
        for start in {tier.valid_from for tier in model.price.tiers}:
            first, *more = (tier for tier in model.price.tiers if tier.valid_from == start)
            assert first.above_prompt_tokens == 0
            assert all(first.input < tier.input and first.output < tier.output for tier in more)
        for tier in model.price.tiers:
            long_lived = tier.cache_write if tier.cache_write_1h is None else tier.cache_write_1h
            assert tier.cache_read <= tier.input <= tier.cache_write <= long_lived < tier.output


def test_writing_to_a_cache_costs_a_quarter_more_or_twice_as_much_where_there_are_two_prices():
    models = [model for model in known_models() if model.endpoint.name == "anthropic"]
    assert len(models) == 18
    for tier in (tier for model in models for tier in model.price.tiers):
        assert tier.cache_write == tier.input * Decimal("1.25")
        assert tier.cache_write_1h == tier.input * 2


@pytest.mark.parametrize(
    ("string", "context", "output_tokens", "tiers"),
    [
        ("openai:gpt-6-astra", 1_050_000, 128_000, {0: "10 50 1 12.50", 272_000: "20 75 2 25"}),
        ("openai:gpt-5.6", 1_050_000, 128_000, {0: "4 20 0.40 5", 272_000: "8 30 0.80 10"}),
        (
            "openai:gpt-5.4-mini",
            400_000,
            128_000,
            {0: "0.75 4.50 0.075 0.75", 272_000: "1.50 6.75 0.15 1.50"},
        ),
        ("gemini:gemini-3.1-pro-preview", 1_048_576, 65_536, {0: "2 12 0.20 2", 200_000: "4 18 0.40 4"}),
        ("gemini:gemini-2.5-pro", 1_048_576, 65_536, {0: "1.25 10 0.125 1.25", 200_000: "2.50 15 0.25 2.50"}),
        ("deepseek:deepseek-flash", 1_000_000, 393_216, {0: "0.15 0.60 0.003 0.15"}),
        ("kimi:kimi-k3", 1_048_576, 1_048_576, {0: "3 15 0.30 3"}),
        (
            "minimax:minimax-m3",
            1_000_000,
            128_000,
            {0: "0.30 1.20 0.06 0.30", 512_000: "0.60 2.40 0.12 0.60"},
        ),
        ("xai:grok-4.7", 500_000, 500_000, {0: "2 6 0.50 2", 199_999: "4 12 1 4"}),
        ("zai:glm-5.3", 1_000_000, 128_000, {0: "1.40 4.40 0.26 1.40"}),
        ("mistral:mistral-large-2512", 262_144, 262_144, {0: "0.50 1.50 0.05 0.50"}),
    ],
)
def test_what_other_vendors_models_hold_and_cost(string, context, output_tokens, tiers):
    model = find_model(string, environ={})
    assert (model.abilities.context_tokens, model.abilities.output_tokens) == (context, output_tokens)
    assert {
        tier.above_prompt_tokens: f"{tier.input} {tier.output} {tier.cache_read} {tier.cache_write}"
        for tier in model.price.tiers
    } == tiers


def test_a_dated_id_is_the_same_model_and_keeps_its_date():
    dated = find_model("anthropic:claude-sonnet-4-5-20250929", environ={})
    plain = find_model("anthropic:claude-sonnet-4-5", environ={})
    assert dated.id == "claude-sonnet-4-5-20250929"
    assert (dated.abilities, dated.price) == (plain.abilities, plain.price)
    assert find_model("anthropic:claude-sonnet-4-5-2025", environ={}).price is None


@pytest.mark.parametrize(
    "name", ["claude-sonnet-5-6", "claude-opus-6", "claude-saga-1", "claude-opus-6-20270101"]
)
def test_a_new_model_is_treated_like_the_newest_and_has_no_price(name):
    model = find_model(f"anthropic:{name}", environ={})
    assert model.id == name
    newest = find_model("anthropic:claude-fable-5-2", environ={}).abilities
    assert model.abilities == replace(newest, output_limited=False)
    assert model.price is None


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonet-5-5",
        "claude-sonnet-5.5",
        "claude_sonnet_5_5",
        "Claude-Sonnet-5-5",
        "sonnet-5-5",
        "clause-sonnet-5-5",
    ],
)
def test_a_slip_of_the_pen_is_noticed_and_can_be_insisted_on(name):
    words = refusal(f"anthropic:{name}")
    assert "write `anthropic:claude-sonnet-5-5`" in words
    assert f"`anthropic:={name}`" in words
    assert find_model(f"anthropic:={name}", environ={}).id == name


@pytest.mark.parametrize(
    ("string", "words"),
    [
        ("", "write for example `anthropic:claude-sonnet-5-5`"),
        ("nobody:model", "(anthropic, openai, gemini, deepseek, "),
        ("antropic:some-model", "did you mean `anthropic:`?"),
        ("Anthropic:some-model", "did you mean `anthropic:`?"),
        ("claude-opus-5", "did you mean `anthropic:claude-opus-5`?"),
        ("anthropic/claude-opus-5", "did you mean `anthropic:claude-opus-5`?"),
        ("anthropic:", "names no model; write for example"),
        ("anthropic:=", "names no model"),
        ("anthropic:@http://127.0.0.1:1", "names no model"),
        ("anthropic:claude-opus-5@127.0.0.1:8080", "does not start with http://"),
        ("anthropic:claude-opus-5@localhost", "does not start with http://"),
        ("anthropic:claude-opus-5@http://", "has no host"),
        ("anthropic:claude-opus-5@http://h:99999", "port out of range"),
        ("anthropic:claude-opus-5@http://h/?key=1", "a query"),
        ("anthropic:claude-opus-5@http://a b/", "a space"),
        ("sim:nothing", "names no vendor or wire family to simulate (anthropic, "),
        ("sim:nobody/some-model", "write `sim:VENDOR/MODEL`"),
        ("sim:anthropic/", "names no vendor"),
        ("sim:anthropic/claude-sonet-5-5", "`sim:anthropic/claude-sonnet-5-5`"),
        ("sim:openai/gpt5.5", "`sim:openai/gpt-5.5`"),
        ("gpt-5.5", "did you mean `openai:gpt-5.5`?"),
        ("bedrock:claude-opus-5", "`bedrock:global.anthropic.claude-opus-5`"),
        ("minimax:minimax-m2-7", "`minimax:MiniMax-M2.7`"),
    ],
)
def test_strings_that_mean_nothing(string, words):
    assert words in refusal(string)


def test_a_password_in_an_address_is_refused_and_not_repeated():
    words = refusal("anthropic:claude-opus-5@https://me:hunter2@host/")
    assert "user or password" in words
    assert "hunter2" not in words


def test_where_a_model_answers():
    def at(string, **environ):
        return find_model(string, environ=environ).endpoint.base_url

    assert at("anthropic:claude-opus-5@http://127.0.0.1:8080/v1/") == "http://127.0.0.1:8080/v1"
    assert (
        at("anthropic:claude-opus-5", ANTHROPIC_BASE_URL="https://proxy.example/a/")
        == "https://proxy.example/a"
    )
    assert at("anthropic:claude-opus-5", ANTHROPIC_BASE_URL=" ") == "https://api.anthropic.com"
    assert at("anthropic:claude-opus-5@http://h", ANTHROPIC_BASE_URL="https://proxy.example") == "http://h"
    with pytest.raises(MisuseError, match="ANTHROPIC_BASE_URL is not a base URL"):
        at("anthropic:claude-opus-5", ANTHROPIC_BASE_URL="proxy.example")


def test_an_id_may_have_an_at_sign_of_its_own():
    assert find_model("anthropic:claude-x@20250929", environ={}).id == "claude-x@20250929"
    both = find_model("anthropic:claude-x@20250929@http://h", environ={})
    assert (both.id, both.endpoint.base_url) == ("claude-x@20250929", "http://h")


def test_the_simulator_plays_a_model_of_any_family():
    plain, real = find_model("sim:", environ={}), find_model("anthropic:claude-sonnet-5-5", environ={})
    assert (plain.id, plain.abilities, plain.price) == (real.id, real.abilities, real.price)
    assert plain.endpoint == Endpoint(
        name="sim",
        family="anthropic",
        auth="none",
        headers=real.endpoint.headers,
        reasoning="signed",
        app="bridle.sim.simulator:answer",
        simulated=True,
    )
    assert find_model("sim:anthropic/claude-sonnet-5-5", environ={}) == plain
    assert find_model(plain.name, environ={}) == plain
    assert find_model("sim:anthropic/claude-haiku-4-5", environ={}).abilities.context_tokens == 200_000
    served = find_model("sim:anthropic/claude-opus-5@http://127.0.0.1:1", environ={}).endpoint
    assert (served.base_url, served.app, served.simulated) == ("http://127.0.0.1:1", "", True)


def test_keys_come_from_the_vendors_own_variables():
    model = find_model("anthropic:claude-opus-5", environ={})
    assert find_key(model, {"ANTHROPIC_API_KEY": " sk-1\n", "ANTHROPIC_AUTH_TOKEN": "t"}) == "sk-1"
    assert find_key(model, {"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": "t"}) == "t"
    assert find_key(find_model("sim:", environ={}), {}) is None
    with pytest.raises(MissingKey) as caught:
        find_key(model, {})
    assert str(caught.value) == (
        "no key for anthropic:claude-opus-5: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN,"
        " or use `sim:`, which needs none"
    )
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY holds characters") as caught:
        find_key(model, {"ANTHROPIC_API_KEY": "sk-one sk-two"})
    assert "sk-one" not in str(caught.value)


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        ("bearer", (("authorization", "Bearer k"),)),
        ("x-api-key", (("x-api-key", "k"),)),
        ("x-goog-api-key", (("x-goog-api-key", "k"),)),
        ("api-key", (("api-key", "k"),)),
        ("none", ()),
    ],
)
def test_how_a_key_travels(auth, headers):
    endpoint = Endpoint(name="x", family="y", auth=auth)
    assert auth_headers(endpoint, "k") == headers
    assert auth_headers(endpoint, None) == ()


def test_the_model_nobody_named():
    assert choose_default_model({}) == "sim:"
    assert choose_default_model({"ANTHROPIC_API_KEY": ""}) == "sim:"
    assert choose_default_model({"ANTHROPIC_AUTH_TOKEN": "t"}) == "anthropic:claude-sonnet-5-5"


OWN = """
[endpoints.gateway]
like = "anthropic"
base_url = "https://models.example"
base_url_env = []
auth = "x-api-key"
key_env = ["GATEWAY_KEY"]

[endpoints.desk]
family = "anthropic"
base_url = "http://127.0.0.1:8080"
auth = "none"

[models.claude.ids.claude-opus-5]
prices = [{ input = 4.5, output = 22.5, cache_read = 0.45, cache_write = 5.625, cache_write_1h = 9 }]

[models.claude.ids.our-tune]
like = "claude-haiku-5-5"
context_tokens = 50_000
"""


def test_a_file_of_ones_own_is_laid_over_the_tables(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(OWN)
    environ = {"BRIDLE_MODELS": str(path), "GATEWAY_KEY": "g"}

    gateway = find_model("gateway:claude-opus-5", environ=environ)
    assert gateway.endpoint.headers == (("anthropic-version", "2026-10-21"),)
    assert auth_headers(gateway.endpoint, find_key(gateway, environ)) == (("x-api-key", "g"),)
    assert gateway.price.tiers[0].input == Decimal("4.5")
    assert gateway.abilities == find_model("anthropic:claude-opus-5", environ={}).abilities
    assert find_model("anthropic:claude-opus-5", environ={}).price.tiers[0].input == 5, "and only over these"

    tune = find_model("gateway:our-tune", environ=environ)
    assert (tune.abilities.context_tokens, tune.abilities.forced_tools) == (50_000, True)
    assert len(tune.price.tiers) == 2

    desk = find_model("desk:anything-at-all", environ=environ)
    assert (desk.abilities, desk.price, find_key(desk, {})) == (NEUTRAL, None, None)
    served = [model for model in known_models(environ) if model.endpoint.name == "gateway"]
    assert len(served) == 19
    assert choose_default_model(environ) == "gateway:claude-sonnet-5-5"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[endpoints", "cannot be read: Expected ']'"),
        ("[model.x]", "the top level has 'model', which is unknown; did you mean 'models'?"),
        (
            "[endpoints.x]\nbase_uri = ''",
            "endpoints.x has 'base_uri', which is unknown; did you mean 'base_url'?",
        ),
        ("[endpoints.x]\nfamily = 'a'", "endpoints.x needs a family and a base_url"),
        ("[endpoints.x]\nlike = 'antropic'", "endpoints.x.like has 'antropic'"),
        ("[endpoints.x]\nlike = 'x'", "endpoints.x refers to itself with `like`"),
        ("[endpoints.x]\nlike = 'y'\n[endpoints.y]\nlike = 'x'", "refers to itself with `like`"),
        ("[endpoints.anthropic]\nmodels = ['clod']", "did you mean 'claude'?"),
        ("[endpoints.anthropic]\nauth = 'barer'", "endpoints.anthropic: Invalid enum value 'barer'"),
        ("[endpoints]\nx = 1", "endpoints must hold tables only"),
        ("[endpoints.local]\nabilities = { effort = [] }", "endpoints.local.abilities has 'effort'"),
        ("[endpoints.local]\nprefixes = []", "endpoints.local.prefixes is a list of at least one"),
        ("[endpoints.local]\ndialect = 'x'", "endpoints.local: Expected `object`, got `str`"),
        ("[models.x]\nids = {}", "models.x needs at least one table in ids"),
        ("[models.claude]\nnewest = 'claude'", "models.claude.newest has 'claude'"),
        ("[models.claude]\nsuffix = '('", "models.claude.suffix is not a pattern"),
        ("[models.claude.ids.x]\ncontext = 1", "models.claude.ids.x has 'context'"),
        ("[models.claude.ids.x]\ncontext_tokens = 'many'", "models.claude.ids.x: Expected `int`, got `str`"),
        ("[models.claude.ids.x]\nprices = 3", "models.claude.ids.x.prices is a list of tables"),
        (
            "[models.claude.ids.x]\nprices = [{ input = 3 }]",
            "models.claude.ids.x.prices: Object missing required field",
        ),
        ("[models.claude.ids.x]\nprices = [{ inputs = 3 }]", "models.claude.ids.x.prices has 'inputs'"),
    ],
)
def test_a_mistake_in_that_file_is_told_with_its_place(tmp_path, text, words):
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(MisuseError) as caught:
        find_model("sim:", environ={"BRIDLE_MODELS": str(path)})
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there():
    with pytest.raises(MisuseError, match=r"BRIDLE_MODELS names 'no/such\.toml', which cannot be read"):
        find_model("sim:", environ={"BRIDLE_MODELS": "no/such.toml"})


@pytest.mark.parametrize(
    ("string", "system", "prefill"),
    [
        ("anthropic:claude-sonnet-5-5", True, False),
        ("anthropic:claude-mythos-5", True, False),
        ("anthropic:claude-opus-5", True, False),
        ("anthropic:claude-opus-4-8", True, False),
        ("anthropic:claude-opus-4-7", False, False),
        ("anthropic:claude-sonnet-5", True, False),
        ("anthropic:claude-haiku-5-5", True, False),
        ("anthropic:claude-sonnet-4-6", False, False),
        ("anthropic:claude-sonnet-4-5", False, True),
        ("anthropic:claude-opus-4-5", False, True),
        ("anthropic:claude-haiku-4-5", False, True),
        ("anthropic-vertex:claude-opus-5@https://x/y", True, False),
        ("bedrock:global.anthropic.claude-opus-5", False, False),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", False, True),
    ],
)
def test_who_may_speak_in_between_and_who_may_speak_last(string, system, prefill):
    abilities = find_model(string, environ={}).abilities
    assert (abilities.system_messages, abilities.prefill) == (system, prefill)


@pytest.mark.parametrize(
    ("string", "images", "documents"),
    [
        ("anthropic:claude-sonnet-5-5", True, ("application/pdf", "text/*")),
        ("deepseek:deepseek-v4-pro", False, ("text/*",)),
        ("zai:glm-5.3", False, ("text/*",)),
        ("minimax:MiniMax-M2.7", False, ("text/*",)),
        ("kimi:kimi-k3", True, ("text/*",)),
        ("openai:gpt-6.1-sol", True, ()),
        ("openrouter:any/model", True, ("application/pdf", "text/*")),
    ],
)
def test_who_sees_pictures_and_reads_documents(string, images, documents):
    abilities = find_model(string, environ={}).abilities
    assert (abilities.images, abilities.document_types) == (images, documents)
    assert "image/tiff" not in abilities.image_types
