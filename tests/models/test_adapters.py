"""Models of other libraries as black boxes, against what they say themselves."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from lexppl import ExplainerClassifier, explain, fit
from lexppl.data.texts import Vocabulary, encoded_texts, texts_of
from lexppl.explanation import mask_means
from lexppl.models import black_box, regime_targets, texts
from lexppl.systems import lex
from lexppl.tabular.given_model import box_of_table
from tests.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore")

DRAW = np.random.default_rng(0)
ARRAY = DRAW.normal(size=(300, 3))
ROWS = torch.from_numpy(ARRAY)
TWO = (ARRAY[:, 1] > 0).astype(int)
THREE = TWO + (ARRAY[:, 1] > 1)
RESPONSE = 2 * ARRAY[:, 1]
QUICK = {"epochs": 15, "batch_size": 100, "learning_rate": 2e-2, "random_state": 0, "k": 1}
RESPONSES = {"two": TWO, "three": THREE, "response": RESPONSE}


def explains_the_second_column(model, **options):
    """A fit to the model alone, as the labels are noise: the one column that it reads is kept."""
    frame = pd.DataFrame(ARRAY, columns=["a", "b", "c"])
    noise = DRAW.permutation(TWO)
    box = black_box(model, classes=["0", "1"], **options)
    explainer = ExplainerClassifier("l2x", model=box, **QUICK).fit(frame, noise)
    assert explainer.importances(frame).mean(0).argmax() == 1
    assert (explainer.calls_.rows, explainer.calls_.calls) == (300, 1)


def by_lightgbm(y, kind):
    lightgbm = pytest.importorskip("lightgbm")
    objective = {"two": "binary", "three": "multiclass", "response": "regression"}[kind]
    options = {"objective": objective, "verbose": -1, "num_class": 3 if kind == "three" else 1}
    given = lightgbm.train(options, lightgbm.Dataset(ARRAY, y), 5)
    return given, given.predict(ARRAY)


def by_xgboost(y, kind):
    xgboost = pytest.importorskip("xgboost")
    rows, options = xgboost.DMatrix(ARRAY, y), {}
    if kind != "response":
        options = {"objective": "binary:logistic" if kind == "two" else "multi:softprob"}
    given = xgboost.train(options | {"num_class": 3} if kind == "three" else options, rows, 5)
    return given, given.predict(rows)


def by_catboost(y, kind):
    catboost = pytest.importorskip("catboost")
    quiet = {"iterations": 20, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    loss = {"two": "Logloss", "three": "MultiClass", "response": "RMSE"}[kind]
    given = catboost.CatBoost({**quiet, "loss_function": loss}).fit(ARRAY, y)
    return given, given.predict(ARRAY, *() if kind == "response" else ("Probability",))


@pytest.mark.parametrize("kind", RESPONSES)
@pytest.mark.parametrize("trained", [by_lightgbm, by_xgboost, by_catboost])
def test_boosters(trained, kind):
    given, said = trained(RESPONSES[kind], kind)
    expected = np.stack([1 - said, said], 1) if kind == "two" and said.ndim == 1 else said
    np.testing.assert_allclose(black_box(given).targets(ROWS), expected, atol=1e-6)
    if kind == "two":
        explains_the_second_column(given)
    if kind == "two" and trained is by_catboost:
        named, _ = trained(np.array(["n", "y"])[TWO], kind)
        found = black_box(named, classes=["y", "n"]).targets(ROWS)
        np.testing.assert_allclose(found, expected[:, ::-1])


def test_boosters_of_a_frame_read_its_columns_by_name():
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    frame = pd.DataFrame(ARRAY, columns=["a", "b", "c"]).assign(
        ward=pd.Categorical(np.where(ARRAY[:, 2] > 0, "x", "y"))
    )
    boosters = [
        lightgbm.train({"objective": "binary", "verbose": -1}, lightgbm.Dataset(frame, TWO), 5),
        xgboost.train(
            {"objective": "binary:logistic"},
            xgboost.DMatrix(frame, TWO, enable_categorical=True),
            5,
        ),
    ]
    for booster in boosters:
        shuffled = frame[["ward", "c", "b", "a"]]
        explainer = ExplainerClassifier("l2x", model=booster, **QUICK).fit(shuffled, TWO)
        assert explainer.entry_names_[explainer.feature_importances_.argmax()] == "b"


def test_a_pipeline_of_words_and_categories():
    frame = pd.DataFrame(
        {
            "note": np.where(TWO == 1, "fever and cough", "no cough"),
            "ward": DRAW.choice(["x", "y"], 300),
            "age": ARRAY[:, 0],
        }
    )
    columns = make_column_transformer(
        (CountVectorizer(), "note"), (OneHotEncoder(), ["ward"]), (StandardScaler(), ["age"])
    )
    model = make_pipeline(columns, LogisticRegression()).fit(frame, TWO)
    explainer = ExplainerClassifier("l2x", model=model, **QUICK).fit(frame, TWO)
    assert explainer.entry_names_[explainer.feature_importances_.argmax()] == "note"


def test_a_function_of_frames():
    def risk(frame):
        assert list(frame.columns) == ["b", "a"]
        return 1 / (1 + np.exp(-4 * frame["b"].to_numpy()))

    explains_the_second_column(risk, columns=["b", "a"])
    response = black_box(lambda frame: frame.b * 2, columns=["a", "b", "c"], task="regression")
    np.testing.assert_allclose(response.targets(ROWS), RESPONSE)


@pytest.mark.parametrize("by_row", [False, True])
def test_a_series_is_read_by_its_index(by_row):
    def sorted_risk(frame):
        return (1 / (1 + np.exp(-frame["b"]))).sort_values()

    expected = ROWS[:, 1].sigmoid()
    box = black_box(sorted_risk, columns=["a", "b", "c"])
    if not by_row:
        torch.testing.assert_close(box.targets(ROWS)[:, 1], expected)
        of_arrays = black_box(lambda rows: sorted_risk(pd.DataFrame(rows, columns=["a", "b", "c"])))
        torch.testing.assert_close(of_arrays.targets(ROWS)[:, 1], expected)
        return
    frame = pd.DataFrame(ARRAY, columns=["a", "b", "c"]).sample(frac=1, random_state=0)
    box, x = box_of_table(box, frame, classes=[0, 1])
    np.testing.assert_allclose(box.targets(x)[:, 1], 1 / (1 + np.exp(-frame["b"])))


def test_torchscript():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    script = torch.jit.script(net)
    given = black_box(script, output="logits").targets(ROWS)
    torch.testing.assert_close(given, net(ROWS).softmax(1).detach())
    with torch.no_grad():
        net[0].weight[:] = 0
        net[0].weight[:, 1] = torch.tensor([3.0, -3.0, 3.0, -3.0])
        net[2].weight[:] = torch.tensor([[-1.0, 1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0]])
    explains_the_second_column(torch.jit.script(net), output="logits")


def forms_of_torchscript(net):
    for made in (torch.jit.script(net), torch.jit.trace(net, torch.zeros(2, 3))):
        yield made
        yield torch.jit.freeze(copy.deepcopy(made))
        yield torch.jit.optimize_for_inference(copy.deepcopy(made))
    sizes = ({0: torch.export.Dim("rows")},)
    yield torch.export.export(net, (torch.zeros(2, 3),), dynamic_shapes=sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scaled", [False, True])
def test_torch_modules_without_parameters_or_modes(dtype, scaled):
    """Of a table, whose rows are float64; dropout is off, and a module is left as it was."""
    torch.manual_seed(0)
    layers = [nn.BatchNorm1d(3), nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)]
    net = nn.Sequential(*layers[not scaled :]).eval()
    frame = pd.DataFrame(ARRAY, columns=["a", "b", "c"])
    expected = net(ROWS.float()).softmax(1).double().detach()
    for form in forms_of_torchscript(net):
        if dtype == torch.float64 and not isinstance(form, nn.Module | torch.jit.ScriptModule):
            continue
        given = form.double() if dtype == torch.float64 else form
        box, x = box_of_table(given, frame, classes=["0", "1"], output="logits")
        torch.testing.assert_close(box.targets(x).double(), expected, atol=1e-5, rtol=1e-4)


def test_modes_are_put_back_where_there_are_some():
    net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).double()
    net[1].eval()
    script = torch.jit.script(net)
    for given in (net, script):
        said = black_box(given, output="logits").targets(ROWS)
        torch.testing.assert_close(said, net[0](ROWS).softmax(1).detach())
        assert given.training


def test_a_module_without_parameters_has_float64_rows():
    class Sum(nn.Module):
        def forward(self, x):
            return x.sum(1)

    frame = pd.DataFrame({"a": 1e9 + ARRAY[:, 0], "b": ARRAY[:, 1]})
    for given in (Sum(), torch.jit.freeze(torch.jit.script(Sum().eval()))):
        box, x = box_of_table(given, frame, classes=None, output="response")
        np.testing.assert_allclose(box.targets(x) - 1e9, ARRAY[:, :2].sum(1), atol=1e-6)


def saved_onnx(model, folder, kinds=(), zipmap=True):
    """An ONNX model of scikit-learn's, by the types of its columns or of one array."""
    converter = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    columns = [(n, getattr(converter.common.data_types, k)([None, 1])) for n, k in kinds]
    rows = None if columns else ARRAY[:1].astype(np.float32)
    options = {id(model): {"zipmap": zipmap}} if hasattr(model, "classes_") else None
    made = converter.to_onnx(model, rows, initial_types=columns or None, options=options)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return made, path


@pytest.mark.parametrize("zipmap", [True, False])
def test_onnx_of_scikit_learn(tmp_path, zipmap):
    model = LogisticRegression().fit(ARRAY, TWO)
    made, path = saved_onnx(model, tmp_path, zipmap=zipmap)
    import onnxruntime

    expected = model.predict_proba(ARRAY)
    for given in (path, str(path), made, onnxruntime.InferenceSession(path)):
        np.testing.assert_allclose(black_box(given).targets(ROWS), expected, atol=1e-5)
    if zipmap:
        explains_the_second_column(path)
    _, path = saved_onnx(LinearRegression().fit(ARRAY, RESPONSE), tmp_path)
    np.testing.assert_allclose(black_box(path).targets(ROWS), RESPONSE, atol=1e-4)


def test_onnx_of_labels_in_words_has_their_order(tmp_path):
    words = np.array(["no", "yes"])[TWO]
    model = LogisticRegression().fit(ARRAY, words)
    _, path = saved_onnx(model, tmp_path)
    expected = model.predict_proba(ARRAY)
    for classes, order in ((["no", "yes"], [0, 1]), (["yes", "no"], [1, 0])):
        found = black_box(path, classes=classes).targets(ROWS)
        np.testing.assert_allclose(found, expected[:, order], atol=1e-5)
    with pytest.raises(ValueError, match=r"labels among \['ill', 'well'\]; it has \['no', 'yes'\]"):
        black_box(path, classes=["ill", "well"]).targets(ROWS)


def test_onnx_of_several_inputs_of_words(tmp_path):
    frame = pd.DataFrame({"ward": DRAW.choice(["x", "y"], 300), "dose": ARRAY[:, 1]})
    columns = make_column_transformer((OneHotEncoder(), ["ward"]), (StandardScaler(), ["dose"]))
    model = make_pipeline(columns, LogisticRegression()).fit(frame, TWO)
    kinds = [("ward", "StringTensorType"), ("dose", "FloatTensorType")]
    _, path = saved_onnx(model, tmp_path, kinds)
    explainer = ExplainerClassifier("l2x", model=path, **QUICK).fit(frame[["dose", "ward"]], TWO)
    assert explainer.entry_names_[explainer.feature_importances_.argmax()] == "dose"


@pytest.mark.parametrize("zipmap", [True, False])
def test_onnx_of_words_is_sent_the_rows_of_the_user_alone(tmp_path, zipmap):
    """Words, whole numbers, booleans and numbers; a row of any other word fails the model."""
    frame = pd.DataFrame(
        {
            "dose": ARRAY[:, 1],
            "ward": DRAW.choice(["x", "y"], 300),
            "code": DRAW.choice([10, 20], 300),
            "visits": DRAW.integers(0, 5, 300),
            "smokes": DRAW.random(300) < 0.5,
        }
    )
    words, numbers = ["ward", "code"], ["dose", "visits", "smokes"]
    as_words = frame.astype(dict.fromkeys(words, str))
    columns = make_column_transformer((OneHotEncoder(), words), ("passthrough", numbers))
    y = np.where((frame.dose > 0) ^ (frame.code == 10), "yes", "no")
    model = make_pipeline(columns, LogisticRegression()).fit(as_words, y)
    names = ["dose", "ward", "code", "visits", "smokes"]
    kinds = [f"{kind}TensorType" for kind in ("Float", "String", "String", "Int64", "Boolean")]
    made, _ = saved_onnx(model, tmp_path, zip(names, kinds, strict=True), zipmap)
    expected = model.predict_proba(as_words)
    for table in (frame, frame[["code", "smokes", "dose", "visits", "ward"]]):
        box, x = box_of_table(made, table, classes=["no", "yes"])
        np.testing.assert_allclose(box.targets(x), expected, atol=1e-5)
        assert box.calls.rows == 300
    if zipmap:
        box, x = box_of_table(made, frame, classes=["yes", "no"])
        np.testing.assert_allclose(box.targets(x), expected[:, ::-1], atol=1e-5)


@pytest.mark.parametrize("labels", [[3, 5], ["b", "a"]])
def test_onnx_names_its_labels_in_what_it_returns(tmp_path, labels):
    model = LogisticRegression().fit(ARRAY, np.array(labels)[TWO])
    _, path = saved_onnx(model, tmp_path)
    expected = model.predict_proba(ARRAY)
    for classes in (labels, labels[::-1]):
        order = [list(model.classes_).index(label) for label in classes]
        found = black_box(path, classes=classes).targets(ROWS)
        np.testing.assert_allclose(found, expected[:, order], atol=1e-5)


def graph_of(operator, kind, second, returns, batch, width, **options):
    """An ONNX model of one operator on x and another array."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, getattr(onnx.TensorProto, kind)
    node = helper.make_node(operator, ["x", "second"], [returns], **options)
    ends = [
        [helper.make_tensor_value_info(name, kind, [batch, *size])]
        for name, size in (("x", [3]), (returns, width))
    ]
    graph = helper.make_graph([node], "g", *ends, [onnx.numpy_helper.from_array(second, "second")])
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


@pytest.mark.parametrize("batch", [1, 4, 7, None])
def test_onnx_of_a_fixed_batch(batch):
    options = {"keepdims": 0, "noop_with_empty_axes": 0}
    made = graph_of("ReduceSum", "DOUBLE", np.array([1]), "logits", batch, [], **options)
    for rows in (1, 3, 8, 300):
        said = black_box(made, output="logits").targets(ROWS[:rows])
        torch.testing.assert_close(said[:, 1], ROWS[:rows].sum(1).sigmoid())


def test_onnx_that_does_not_say_what_it_returns(tmp_path):
    weights = np.float32([[-1, 1], [-2, 2], [0, 0]])
    made = graph_of("Gemm", "FLOAT", weights, "y", 1, [2])
    refused(r"say what ModelProto returns \(y\): output='logits'", black_box, made)
    # Its batch is of one row, and it gets each on its own.
    said = black_box(made, output="logits").targets(ROWS)
    torch.testing.assert_close(
        said, torch.from_numpy(ARRAY @ weights).softmax(1), atol=1e-5, rtol=1e-5
    )
    (tmp_path / "none.onnx").write_text("hello")
    with pytest.raises(ValueError, match=r"^none.onnx is no ONNX model that onnxruntime reads: "):
        black_box(tmp_path / "none.onnx")
    refused("there is no black box file", black_box, tmp_path / "gone.onnx")


WORDS = ["good", "bad", "film", "plot", "actor", "scene"]
TEXTS = [" ".join(DRAW.choice(WORDS, 6)) for _ in range(300)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A BERT of one layer, of random weights, with a vocabulary of words, read from a folder."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]))
    vocabulary = {word: n for n, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=10, intermediate_size=16, **small)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return (
        transformers.BertForSequenceClassification.from_pretrained(folder, local_files_only=True),
        transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True),
    )


def test_transformers(bert):
    model, tokenizer = bert
    given = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model.eval()(**given).logits.softmax(1)
    model.train()
    x = given["input_ids"].float()
    box = black_box((model, tokenizer))
    torch.testing.assert_close(box.targets(x), expected, atol=1e-5, rtol=1e-4)
    assert model.training and box.name == "BertForSequenceClassification"
    vocabulary = Vocabulary(WORDS)
    of_words, _ = encoded_texts(TEXTS, vocabulary)
    box = black_box((model, tokenizer), words=vocabulary)
    torch.testing.assert_close(box.targets(of_words), expected, atol=1e-5, rtol=1e-4)
    assert (box.calls.rows, box.calls.calls) == (len(set(TEXTS)), 1)
    system = lex(texts(len(vocabulary), of_words.shape[1]), classes=2, k=2)
    result = fit(system, (of_words, box.targets(of_words)), epochs=1, progress=False)
    assert mask_means(explain(result, of_words[:4], draws=0)).shape == (1, 4, 6)


def test_labels_and_responses_of_transformers(bert):
    model, tokenizer = bert
    x = tokenizer(TEXTS[:9], padding=True, return_tensors="pt")["input_ids"].float()
    given = black_box(bert).targets(x)
    named = copy.deepcopy(model)
    named.config.id2label = {0: "bad", 1: "good"}
    for classes, expected in ((["good", "bad"], given.flip(1)), (["0", "1"], given)):
        box = black_box((named, tokenizer), classes=classes)
        torch.testing.assert_close(box.targets(x), expected)
    named.config.problem_type = "multi_label_classification"
    refused("labels do not exclude each other", black_box, (named, tokenizer))
    one = type(model)(type(model.config)(**{**model.config.to_dict(), "num_labels": 1}))
    assert black_box((one, tokenizer)).task == "regression"
    box = black_box((one, tokenizer), output="logits")
    response = black_box((one, tokenizer)).targets(x)
    torch.testing.assert_close(box.targets(x)[:, 1], response.sigmoid())


def test_a_classifier_of_texts_is_explained_by_words():
    good = np.array(["good" in text for text in TEXTS]).astype(int)
    model = make_pipeline(CountVectorizer(binary=True), MultinomialNB()).fit(TEXTS, good)
    vocabulary = Vocabulary(WORDS)
    x, _ = encoded_texts(TEXTS, vocabulary)
    box = black_box(model, words=vocabulary)
    np.testing.assert_allclose(box.targets(x), model.predict_proba(TEXTS), atol=1e-6)
    score = black_box(
        lambda given: [len(text) for text in given], words=vocabulary, output="response"
    )
    assert score.targets(x).tolist() == [len(text) for text in TEXTS]


def loud(given):
    """Probabilities that a text is loud, by its capitals and signs."""
    return np.array([(text.count("!") + any(map(str.isupper, text))) / 4 for text in given])


LOUD = ["GREAT film!", "great film", "Great film, 10/10!!", "great  film…", "great film"]


@pytest.mark.smoke
def test_a_model_of_texts_reads_them_as_they_are_written():
    vocabulary = Vocabulary.of(LOUD)
    x, _ = encoded_texts(LOUD, vocabulary)
    sent = []
    model = lambda given: sent.extend(given) or loud(given)  # noqa: E731
    box = black_box(model, words=vocabulary, output="probabilities", classes=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(box.targets(LOUD)[:, 1], torch.tensor(loud(LOUD)).float())
        assert torch.equal(box(np.array(LOUD)), box.targets(pd.Series(LOUD)))
        assert torch.equal(regime_targets("surrogate post-hoc", LOUD, black_box=box), box(LOUD))
    # The same text is sent once, and what is known is not sent again.
    assert sent == LOUD[:4] and (box.calls.rows, box.calls.known) == (4, 1 + 4 * 5)
    # Word numbers are other rows than the texts, and have no capitals: that is named.
    with pytest.warns(UserWarning, match=r"in lower case and without signs.*targets\(data.texts\)"):
        assert box.targets(x)[:, 1].tolist() == [0.0] * 5
    assert sent[4:] == ["great film", "great film 10 10"]


def test_limits_and_caches_of_texts(tmp_path):
    vocabulary = Vocabulary.of(LOUD)
    how = {"words": vocabulary, "output": "response"}
    box = black_box(loud, max_calls=2, cache=tmp_path, **how)
    refused("allows 2 more rows of loud, and 4 have no answer yet", box.targets, LOUD)
    part = [LOUD[place] for place in box.affordable(LOUD)]
    expected = torch.tensor(loud(part)).float()
    torch.testing.assert_close(box.targets(part), expected)
    again = black_box(loud, max_calls=1, cache=tmp_path, **how)
    torch.testing.assert_close(again.targets(part), expected)
    assert again.calls.rows == 0
    refused(r"loud fails on row 1: \w+Error", black_box(loud, **how).targets, ["a", None])
    for wrong in ("a text", 3.5):
        with pytest.raises(TypeError):
            black_box(loud, **how).targets(wrong)
    refused("none of them 0", black_box(loud, **how).targets, [])
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor; it is a list"):
        black_box(loud, output="response").targets(["a"])


def test_an_explainer_of_a_model_that_reads_capitals():
    draw = np.random.default_rng(0)
    pairs = [(word.upper() if draw.random() < 0.5 else word) for word in ["good"] * 200]
    written = [f"a {word} film" if i % 2 else f"{word} film" for i, word in enumerate(pairs)]
    data = texts_of(written, [text.islower() for text in written])
    model = make_pipeline(
        CountVectorizer(lowercase=False, token_pattern=r"\S+"), LogisticRegression(C=100.0)
    ).fit(written, [text.islower() for text in written])
    train, test = data.split(0.5, 0.5, seed=0)
    box = black_box(model, words=data.vocabulary, classes=[False, True])
    found = box.targets(test.texts)
    np.testing.assert_allclose(found, model.predict_proba(list(test.texts)), atol=1e-6)
    assert set(found.argmax(1).tolist()) == {0, 1}
    system = lex(texts(len(data.vocabulary), data.length), classes=2, k=1)
    result = fit(system, (train.x, box.targets(train.texts)), epochs=1, progress=False)
    assert mask_means(explain(result, test.x[:4], draws=0)).shape == (1, 4, 3)
