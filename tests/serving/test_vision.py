"""A Qwen3.5 vision-language model: text alone, and text around an image, which SGLang's own vision tower reads."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import pytest
import torch
from PIL import Image

from serving.checkpoints import IMAGE_TOKEN, VISION_END, VISION_START, VisionCheckpoint
from serving.server import Service, serving

pytestmark = pytest.mark.serving


@pytest.fixture(scope="module")
def vision_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    checkpoint = VisionCheckpoint(tmp_path_factory.mktemp("qwen3_5_vision"))
    with serving(checkpoint, tmp_path_factory.mktemp("server") / "log", grid=64) as service:
        yield service


def test_text(vision_service: Service) -> None:
    sample = vision_service.checkpoint.sample(200, seed=80)
    answers = [vision_service.server.generate(sample.prompt) for _ in range(2)]
    assert [answer.cached_tokens for answer in answers] == [0, 192]
    assert [answer.output for answer in answers] == [sample.output] * 2


def test_image(vision_service: Service) -> None:
    checkpoint = vision_service.checkpoint
    assert isinstance(checkpoint, VisionCheckpoint)
    random = torch.Generator().manual_seed(81)
    images = [
        Image.fromarray(torch.randint(256, (64, 64, 3), generator=random, dtype=torch.uint8).numpy()) for _ in range(2)
    ]
    before, after = list(range(10, 40)), list(range(50, 120))
    prompt = [*before, VISION_START, IMAGE_TOKEN, VISION_END, *after]
    outputs = [checkpoint.output_with_image(before, image, after) for image in images]
    assert outputs[0] != outputs[1]
    for cached_tokens in (0, 64):
        for image, output in zip(images, outputs, strict=True):
            answer = vision_service.server.generate(prompt, image_data=data_uri(image))
            assert (answer.output, answer.cached_tokens) == (output, cached_tokens)


def data_uri(image: Image.Image) -> str:
    png = io.BytesIO()
    image.save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
