"""Networks that hear and speak: transformers, with small configurations and random weights."""

import torch
import transformers as tf
from torch import nn

from kit import export, model


class Hears(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, sound):
        return self.inner(sound, return_dict=False)[0]


class Speaks(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, spectrogram):
        return self.inner(spectrogram)


def samples(rng, N, L):
    return {"sound": rng.standard_normal((N, L), dtype="float32")}


def spectrum(rng, N):
    return {"sound": rng.standard_normal((N, 80, 400), dtype="float32")}


def frames(rng, N, L):
    return {"spectrogram": rng.standard_normal((N, L, 80), dtype="float32")}


@model(samples, {"N": 1, "L": 16000}, {"N": 1, "L": 9001}, {"N": 2, "L": 5000})
def wav2vec2(path):
    torch.manual_seed(0)
    config = tf.Wav2Vec2Config(vocab_size=32, hidden_size=192, num_hidden_layers=3, num_attention_heads=4,
                               intermediate_size=512, conv_dim=(128,) * 7, num_conv_pos_embeddings=32,
                               num_conv_pos_embedding_groups=4)
    export(path, Hears(tf.Wav2Vec2ForCTC(config)), {"sound": torch.randn(2, 4000)},
           {"sound": {0: "N", 1: "L"}}, ["logits"], dynamo=False)


@model(spectrum, {"N": 1}, {"N": 2}, {"N": 3})
def whisper_encoder(path):
    torch.manual_seed(0)
    config = tf.WhisperConfig(vocab_size=1000, d_model=192, encoder_layers=3, decoder_layers=3,
                              encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=512,
                              decoder_ffn_dim=512, max_source_positions=200, pad_token_id=0,
                              bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    export(path, Hears(tf.WhisperModel(config).encoder), {"sound": torch.randn(2, 80, 400)},
           {"sound": {0: "N"}}, ["states"], dynamo=True)


@model(frames, {"N": 1, "L": 40}, {"N": 1, "L": 17}, {"N": 2, "L": 25})
def vocoder(path):
    torch.manual_seed(0)
    config = tf.SpeechT5HifiGanConfig(upsample_initial_channel=128, normalize_before=False)
    export(path, Speaks(tf.SpeechT5HifiGan(config)), {"spectrogram": torch.randn(2, 30, 80)},
           {"spectrogram": {0: "N", 1: "L"}}, ["sound"], dynamo=False)
