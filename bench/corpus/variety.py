"""More networks, a line each: what is special about them is in their layers, not in how they are written."""

import torch
import transformers as tf
from torch import nn
from torch.nn import functional as F
from torchvision import models as tv

import audio
import language
import vision
from kit import MODELS, Model, export, image, randomize

BATCHES = [{"N": n, "H": 224, "W": 224} for n in (1, 2, 3)]
SMALL = language.SMALL


def sees(name, make, dynamo, sizes=vision.SIZES, **how):
    """A network that takes an image called so; `how` as in vision.write."""
    MODELS[name] = Model(lambda path: vision.write(path, make, dynamo, **how), image(), tuple(sizes))


def reads(name, make, dynamo, **options):
    """A network of transformers that takes words and their mask."""
    MODELS[name] = Model(lambda path: language.write(path, language.make(*make()), dynamo, **options),
                         language.both, language.SIZES)


def hears(name, make, outputs="states"):
    """A network of transformers that takes samples of sound."""

    def build(path):
        torch.manual_seed(0)
        kind, config = make()
        export(path, audio.Hears(kind(config)), {"sound": torch.randn(1, 8000)},
               {"sound": {0: "N", 1: "L"}}, [outputs], dynamo=False)

    MODELS[name] = Model(build, audio.samples, ({"N": 1, "L": 16000}, {"N": 2, "L": 7999}, {"N": 1, "L": 4001}))


# ---- torchvision ----

sees("mobilenet_v2", tv.mobilenet_v2, True)
sees("shufflenet", tv.shufflenet_v2_x1_0, False)
sees("googlenet", lambda: tv.googlenet(init_weights=False, aux_logits=False), False)
sees("mnasnet", tv.mnasnet0_5, True)
sees("densenet", lambda: tv.densenet.DenseNet(16, (4, 4, 4), 32), False)
sees("squeezenet", tv.squeezenet1_1, True)
sees("resnext", lambda: tv.resnet.ResNet(tv.resnet.Bottleneck, [1, 1, 1, 1], groups=32, width_per_group=4), True)
sees("lraspp", lambda: tv.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None), False,
     pick=lambda result: result["out"])
sees("swin_v2", lambda: tv.swin_transformer.SwinTransformer(
    [4, 4], 48, [2, 2], [2, 4], [8, 8], block=tv.swin_transformer.SwinTransformerBlockV2,
    downsample_layer=tv.swin_transformer.PatchMergingV2), False, BATCHES, axes={0: "N"})


class Films(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = randomize(tv.video.r3d_18(weights=None))

    def forward(self, film):
        return self.inner(film)


def r3d(path):
    torch.manual_seed(0)
    export(path, Films(), {"film": torch.randn(1, 3, 8, 56, 56)},
           {"film": {0: "N", 2: "T", 3: "H", 4: "W"}}, ["scores"], dynamo=True)


MODELS["r3d"] = Model(r3d, lambda rng, N, T, H, W: {"film": rng.standard_normal((N, 3, T, H, W), dtype="float32")},
                      ({"N": 1, "T": 8, "H": 56, "W": 56}, {"N": 1, "T": 4, "H": 48, "W": 64}))


# ---- of our own: what detectors, filters of styles and larger pictures are made of ----

def silu(a, b, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU())


class GridDetector(nn.Module):
    """Boxes on two grids whose sizes follow from the image's, as the YOLO family has them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(silu(3, 16, 3, 2), silu(16, 32, 3, 2), silu(32, 64, 3, 2))
        self.fine, self.coarse = silu(64, 128, 3, 2), silu(128, 128, 3, 2)
        self.join = silu(512, 128, 1)
        self.heads = nn.ModuleList([nn.Conv2d(256, 75, 1), nn.Conv2d(128, 75, 1)])

    def forward(self, image):
        fine = self.fine(self.stem(image))
        pooled = [self.coarse(fine)]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        coarse = self.join(torch.cat(pooled, 1))
        both = torch.cat([F.interpolate(coarse, scale_factor=2), fine], 1), coarse
        return torch.cat([self.boxes(head(x), stride) for head, x, stride in zip(self.heads, both, (16, 32))], 1)

    @staticmethod
    def boxes(x, stride):
        n, _, height, width = x.shape
        x = x.view(n, 3, 25, height, width).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        center = (x[..., :2] * 2 - 0.5 + torch.stack([columns, rows], -1).to(x.dtype)) * stride
        extent = (x[..., 2:4] * 2) ** 2 * stride
        return torch.cat([center, extent, x[..., 4:]], -1).reshape(n, -1, 25)


def style():
    def layer(a, b, kernel, stride=1):
        return nn.Sequential(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(a, b, kernel, stride),
                             nn.InstanceNorm2d(b, affine=True), nn.ReLU())

    return nn.Sequential(layer(3, 16, 9), layer(16, 32, 3, 2), layer(32, 64, 3, 2), layer(64, 64, 3),
                         nn.Upsample(scale_factor=2), layer(64, 32, 3), nn.Upsample(scale_factor=2),
                         layer(32, 16, 3), nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9))


def larger():
    return nn.Sequential(nn.Conv2d(3, 32, 5, 1, 2), nn.Tanh(), nn.Conv2d(32, 32, 3, 1, 1), nn.Tanh(),
                         nn.Conv2d(32, 27, 3, 1, 1), nn.PixelShuffle(3))


sees("grid_detector", GridDetector, False)
sees("grid_detector_dynamo", GridDetector, True)
sees("style", style, False)
sees("style_dynamo", style, True)
sees("larger", larger, False)

# ---- transformers that see ----

first = dict(pick=lambda result: result[0])
sees("mobilevit", lambda: tf.MobileViTForImageClassification(tf.MobileViTConfig(
    hidden_sizes=[96, 120, 144], neck_hidden_sizes=[16, 32, 64, 96, 128, 160, 320], image_size=224)), False,
    BATCHES[:2], axes={0: "N"}, **first)
sees("dinov2", lambda: tf.Dinov2Model(tf.Dinov2Config(
    hidden_size=192, num_hidden_layers=4, num_attention_heads=3, image_size=224, patch_size=14)), True,
    BATCHES, axes={0: "N"}, **first)
sees("efficientnet_tf", lambda: tf.EfficientNetForImageClassification(tf.EfficientNetConfig(
    width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320)), False, **first)
sees("poolformer", lambda: tf.PoolFormerForImageClassification(tf.PoolFormerConfig(depths=[1, 1, 1, 1])), True, **first)
sees("levit", lambda: tf.LevitForImageClassification(tf.LevitConfig()), False, BATCHES, axes={0: "N"}, **first)
sees("dpt", lambda: tf.DPTForDepthEstimation(tf.DPTConfig(
    hidden_size=192, num_hidden_layers=4, num_attention_heads=3, image_size=224, backbone_out_indices=[0, 1, 2, 3],
    neck_hidden_sizes=[32, 64, 96, 128], fusion_hidden_size=64)), False, BATCHES, axes={0: "N"}, **first)
sees("beit", lambda: tf.BeitModel(tf.BeitConfig(
    hidden_size=192, num_hidden_layers=3, num_attention_heads=3, intermediate_size=768,
    use_relative_position_bias=True)), False, BATCHES, axes={0: "N"}, **first)
sees("convnextv2", lambda: tf.ConvNextV2ForImageClassification(tf.ConvNextV2Config(
    hidden_sizes=[48, 96, 192, 384], depths=[1, 1, 2, 1])), True, **first)
sees("swin2sr", lambda: tf.Swin2SRForImageSuperResolution(tf.Swin2SRConfig(
    embed_dim=48, depths=[2, 2], num_heads=[3, 3], image_size=64, window_size=8)), False,
    [{"N": n, "H": 64, "W": 64} for n in (1, 2)], axes={0: "N"}, size=64, **first)

# ---- transformers that read ----

reads("bert", lambda: (tf.BertForTokenClassification, tf.BertConfig(**SMALL)), False)
reads("roberta", lambda: (tf.RobertaForSequenceClassification,
                          tf.RobertaConfig(**SMALL | dict(max_position_embeddings=514))), True)
reads("albert", lambda: (tf.AlbertForMaskedLM, tf.AlbertConfig(**SMALL, embedding_size=64)), True)
reads("mpnet", lambda: (tf.MPNetModel, tf.MPNetConfig(**SMALL)), False)
reads("electra", lambda: (tf.ElectraForTokenClassification, tf.ElectraConfig(**SMALL, embedding_size=128)), True)
reads("squeezebert", lambda: (tf.SqueezeBertModel, tf.SqueezeBertConfig(**SMALL, embedding_size=256)), False)
reads("mobilebert", lambda: (tf.MobileBertModel, tf.MobileBertConfig(
    vocab_size=1000, hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256,
    embedding_size=64, intra_bottleneck_size=64)), False)
reads("xlnet", lambda: (tf.XLNetModel, tf.XLNetConfig(
    vocab_size=1000, d_model=256, n_layer=3, n_head=4, d_inner=512)), False)
reads("rembert", lambda: (tf.RemBertModel, tf.RemBertConfig(**SMALL, input_embedding_size=64)), True)
reads("bloom", lambda: (tf.BloomForCausalLM, tf.BloomConfig(
    vocab_size=1000, hidden_size=256, n_layer=3, n_head=4)), False)
reads("gpt2", lambda: (tf.GPT2LMHeadModel, tf.GPT2Config(vocab_size=1000, n_embd=256, n_layer=3, n_head=4)), False)
reads("gpt_neox", lambda: (tf.GPTNeoXForCausalLM, tf.GPTNeoXConfig(**SMALL)), True)
reads("phi", lambda: (tf.PhiForCausalLM, tf.PhiConfig(**SMALL)), True)
reads("opt", lambda: (tf.OPTForCausalLM, tf.OPTConfig(
    vocab_size=1000, hidden_size=256, num_hidden_layers=3, num_attention_heads=4, ffn_dim=1024,
    max_position_embeddings=512, word_embed_proj_dim=256)), True)
reads("falcon", lambda: (tf.FalconForCausalLM, tf.FalconConfig(
    vocab_size=1000, hidden_size=256, num_hidden_layers=3, num_attention_heads=4)), True)
reads("bart", lambda: (tf.BartModel, tf.BartConfig(
    vocab_size=1000, d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512)), False)

# ---- transformers that hear ----

HEARS = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
             num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=4)
hears("hubert", lambda: (tf.HubertForCTC, tf.HubertConfig(**HEARS, conv_dim=[64] * 7)), "logits")
hears("wavlm", lambda: (tf.WavLMModel, tf.WavLMConfig(**HEARS, conv_dim=[64] * 7)))
hears("sew", lambda: (tf.SEWModel, tf.SEWConfig(**HEARS)))


class Codes(nn.Module):
    """The encoder of EnCodec: causal convolutions whose padding follows from the length."""

    def __init__(self):
        super().__init__()
        config = tf.EncodecConfig(num_filters=8, hidden_size=32, codebook_dim=32, codebook_size=64,
                                  target_bandwidths=[1.5])
        self.inner = tf.EncodecModel(config).encoder

    def forward(self, sound):
        return self.inner(sound[:, None])


def encodec(path):
    torch.manual_seed(0)
    export(path, Codes(), {"sound": torch.randn(1, 8000)}, {"sound": {0: "N", 1: "L"}}, ["codes"], dynamo=False)


MODELS["encodec"] = Model(encodec, audio.samples, MODELS["hubert"].sizes)
