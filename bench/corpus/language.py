"""Networks that read and write: transformers, with small configurations and random weights."""

import torch
import transformers as tf
from torch import nn

from kit import export, model, tokens

SIZES = {"N": 1, "L": 64}, {"N": 1, "L": 17}, {"N": 3, "L": 40}
OPEN = {0: "N", 1: "L"}
SMALL = dict(vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
             intermediate_size=1024, max_position_embeddings=512)
DECODER = SMALL | dict(num_key_value_heads=2, head_dim=64, attn_implementation="sdpa")


class Reads(nn.Module):
    """The first result of `inner` on words and their mask."""

    def __init__(self, inner, **options):
        super().__init__()
        self.inner, self.options = inner, options

    def forward(self, input_ids, attention_mask):
        return self.inner(input_ids=input_ids, attention_mask=attention_mask, return_dict=False,
                          **self.options)[0]


def words(*shape):
    return torch.randint(1, 1000, shape)


def write(path, inner, dynamo, **options):
    args = {"input_ids": words(2, 24), "attention_mask": torch.ones(2, 24, dtype=torch.int64)}
    export(path, Reads(inner, **options), args, {name: OPEN for name in args}, ["result"], dynamo)


def make(kind, config):
    torch.manual_seed(0)
    return kind(config)


both = tokens("input_ids", "attention_mask")


@model(both, *SIZES)
def distilbert(path):
    config = tf.DistilBertConfig(vocab_size=1000, dim=256, n_layers=4, n_heads=4, hidden_dim=1024)
    write(path, make(tf.DistilBertForSequenceClassification, config), dynamo=True)


@model(both, *SIZES)
def deberta(path):
    config = tf.DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"],
                                position_buckets=64, norm_rel_ebd="layer_norm", share_att_key=True,
                                position_biased_input=False, type_vocab_size=0)
    write(path, make(tf.DebertaV2ForTokenClassification, config), dynamo=False)


@model(both, *SIZES)
def modernbert(path):
    config = tf.ModernBertConfig(**SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                                 sep_token_id=2, attn_implementation="sdpa")
    write(path, make(tf.ModernBertForMaskedLM, config), dynamo=True)


def t5():
    config = tf.T5Config(vocab_size=1000, d_model=256, d_kv=64, d_ff=512, num_layers=3, num_heads=4,
                         decoder_start_token_id=0)
    return make(tf.T5ForConditionalGeneration, config)


@model(both, *SIZES)
def t5_encoder(path):
    write(path, t5().encoder, dynamo=False)


class Writes(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, encoder_hidden_states):
        return self.inner(decoder_input_ids=input_ids, encoder_outputs=(encoder_hidden_states,),
                          use_cache=False, return_dict=False)[0]


def decoder_feeds(rng, N, L, S):
    states = rng.standard_normal((N, S, 256), dtype="float32")
    return {"input_ids": rng.integers(1, 1000, (N, L)), "encoder_hidden_states": states}


@model(decoder_feeds, {"N": 1, "L": 16, "S": 64}, {"N": 1, "L": 1, "S": 17}, {"N": 3, "L": 5, "S": 40})
def t5_decoder(path):
    args = {"input_ids": words(2, 24), "encoder_hidden_states": torch.randn(2, 30, 256)}
    axes = {"input_ids": OPEN, "encoder_hidden_states": {0: "N", 1: "S"}}
    export(path, Writes(t5()), args, axes, ["logits"], dynamo=False)


@model(both, *SIZES)
def llama(path):
    write(path, make(tf.LlamaForCausalLM, tf.LlamaConfig(**DECODER)), dynamo=True, use_cache=False)


@model(both, *SIZES)
def qwen3(path):
    write(path, make(tf.Qwen3ForCausalLM, tf.Qwen3Config(**DECODER)), dynamo=True, use_cache=False)


@model(both, *SIZES)
def gemma2(path):
    write(path, make(tf.Gemma2ForCausalLM, tf.Gemma2Config(**DECODER | dict(attn_implementation="eager"))), dynamo=False, use_cache=False)


class Tagger(nn.Module):
    """Words with their number, packed as PyTorch wants them."""

    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.layers = kind(64, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, 12)

    def forward(self, input_ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(input_ids), lengths, batch_first=True)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        return self.head(states)


def tagger_feeds(rng, N, L):
    lengths = [max(1, L - 3 * i) for i in range(N)]
    return {"input_ids": rng.integers(1, 1000, (N, L)), "lengths": lengths}


def write_tagger(path, kind):
    torch.manual_seed(0)
    args = {"input_ids": words(2, 12), "lengths": torch.tensor([12, 7])}
    export(path, Tagger(kind), args, {"input_ids": OPEN, "lengths": {0: "N"}}, ["tags"], dynamo=False)


@model(tagger_feeds, *SIZES)
def gru_tagger(path):
    write_tagger(path, nn.GRU)


@model(tagger_feeds, *SIZES)
def lstm_tagger(path):
    write_tagger(path, nn.LSTM)


def clip_feeds(rng, N, L):
    return both(rng, N, L) | {"pixel_values": rng.standard_normal((N, 3, 64, 64), dtype="float32")}


class Matches(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, attention_mask, pixel_values):
        return self.inner(input_ids=input_ids, attention_mask=attention_mask,
                          pixel_values=pixel_values).logits_per_image


@model(clip_feeds, *SIZES)
def clip(path):
    text = dict(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                intermediate_size=256, eos_token_id=2)
    vision = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
                  image_size=64, patch_size=8)
    config = tf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=64)
    args = {"input_ids": words(2, 24), "attention_mask": torch.ones(2, 24, dtype=torch.int64),
            "pixel_values": torch.randn(2, 3, 64, 64)}
    axes = {"input_ids": OPEN, "attention_mask": OPEN, "pixel_values": {0: "N"}}
    export(path, Matches(make(tf.CLIPModel, config)), args, axes, ["scores"], dynamo=False)
