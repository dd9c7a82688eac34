"""Networks that see: torchvision and transformers, with random weights."""

import torch
import torchvision
from torch import nn
from torchvision import models as tv

from kit import export, image, model, randomize

OPEN = {0: "N", 2: "H", 3: "W"}
SIZES = {"N": 1, "H": 224, "W": 224}, {"N": 1, "H": 160, "W": 192}, {"N": 2, "H": 96, "W": 128}


class Takes(nn.Module):
    """`inner` with an input called "image"; `pick` chooses from what it gives."""

    def __init__(self, inner, pick=lambda result: result):
        super().__init__()
        self.inner, self.pick = inner, pick

    def forward(self, image):
        return self.pick(self.inner(image))


def write(path, make, dynamo, axes=OPEN, size=224, outputs=("scores",), pick=lambda result: result):
    torch.manual_seed(0)
    example = torch.randn(2, 3, size, size)
    export(path, Takes(randomize(make()), pick), {"image": example}, {"image": axes}, list(outputs), dynamo)


@model(image(), *SIZES)
def mobilenet_v3(path):
    write(path, tv.mobilenet_v3_small, dynamo=True)


@model(image(), *SIZES)
def resnet18(path):
    write(path, tv.resnet18, dynamo=False)


@model(image(), *SIZES)
def efficientnet_b0(path):
    write(path, tv.efficientnet_b0, dynamo=True)


@model(image(), *SIZES)
def regnet_y(path):
    write(path, tv.regnet_y_400mf, dynamo=False)


@model(image(), *SIZES)
def convnext(path):
    setting = tv.convnext.CNBlockConfig
    stages = [setting(48, 96, 2), setting(96, 192, 2), setting(192, 384, 3), setting(384, None, 1)]
    write(path, lambda: tv.convnext.ConvNeXt(stages), dynamo=True)


@model(image(), *[{"N": n, "H": 224, "W": 224} for n in (1, 2, 3)])
def swin(path):
    make = lambda: tv.swin_transformer.SwinTransformer([4, 4], 48, [2, 2, 2, 2], [2, 4, 8, 16], [7, 7])
    write(path, make, dynamo=True, axes={0: "N"})


@model(image(), *[{"N": n, "H": 224, "W": 224} for n in (1, 2, 3)])
def vit(path):
    write(path, lambda: tv.VisionTransformer(224, 16, 6, 6, 384, 1536), dynamo=False, axes={0: "N"})


@model(image(), *SIZES)
def deeplab(path):
    make = lambda: tv.segmentation.deeplabv3_mobilenet_v3_large(weights_backbone=None)
    write(path, make, dynamo=False, pick=lambda result: result["out"])


@model(image(), *SIZES)
def unet(path):
    write(path, UNet, dynamo=True)


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down = nn.ModuleList(self.block(a, b) for a, b in zip((3, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(self.block(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                             nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, join in zip(reversed(self.up), reversed(self.join)):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


class Detects(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, image):
        found = self.inner([image[0]])[0]
        return found["boxes"], found["scores"], found["labels"]


def write_detector(path, inner):
    torch.manual_seed(0)
    for part in inner.modules():  # scores that differ: the order of equal ones is nobody's promise
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    export(path, Detects(randomize(inner)), {"image": torch.rand(1, 3, 320, 320)},
           {"image": {2: "H", 3: "W"}}, ["boxes", "scores", "labels"], dynamo=False)


DETECT = {"N": 1, "H": 320, "W": 320}, {"N": 1, "H": 320, "W": 256}, {"N": 1, "H": 240, "W": 320}


@model(image(), *DETECT)
def ssdlite(path):
    write_detector(path, tv.detection.ssdlite320_mobilenet_v3_large(weights_backbone=None))


@model(image(), *DETECT)
def faster_rcnn(path):
    write_detector(path, tv.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights_backbone=None))


@model(image(), *SIZES)
def detr(path):
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 1, 1],
                            layer_type="basic", out_features=["stage4"])
    config = DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                        backbone_config=backbone, d_model=128, encoder_layers=2, decoder_layers=2,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256,
                        decoder_ffn_dim=256, num_queries=50)
    write(path, lambda: DetrForObjectDetection(config), dynamo=False, outputs=("logits", "boxes"),
          pick=lambda r: (r.logits, r.pred_boxes))


@model(image(), *[{"N": n, "H": 224, "W": 224} for n in (1, 2, 3)])
def yolos(path):
    from transformers import YolosConfig, YolosForObjectDetection

    config = YolosConfig(hidden_size=96, num_hidden_layers=4, num_attention_heads=3, intermediate_size=384,
                         image_size=[224, 224], num_detection_tokens=50)
    write(path, lambda: YolosForObjectDetection(config), dynamo=True, axes={0: "N"},
          outputs=("logits", "boxes"), pick=lambda r: (r.logits, r.pred_boxes))


@model(image(), *SIZES)
def segformer(path):
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(hidden_sizes=[16, 32, 80, 128], decoder_hidden_size=128, num_labels=20)
    write(path, lambda: SegformerForSemanticSegmentation(config), dynamo=False, pick=lambda r: r.logits)
