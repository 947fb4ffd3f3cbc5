"""Where ReLU or max pooling decides between two values that are nearly equal, f32 may decide otherwise than f64 and
be right too. Goldens keep away from such images."""

from torch import nn

# Relative to the root mean square of the layer. Measured against f64 on 512 values in front of each max pooling, the
# engine's error is 1e-6 in the median and 1.2e-5 at most with Winograd, 7e-7 and 4e-6 without.
MARGIN = 1e-5


def margin(model, image):
    """How close ReLU and max pooling come to deciding otherwise, relative to the root mean square."""
    least, x = float("inf"), image
    for module in model:
        scale = x.square().mean().sqrt().item()
        if isinstance(module, nn.ReLU):
            least = min(least, x.abs().min().item() / scale)
        if isinstance(module, nn.MaxPool2d):
            windows = x.unfold(2, module.kernel_size, module.stride).unfold(3, module.kernel_size, module.stride)
            two = windows.flatten(4).topk(2).values
            # A window of zeros only, after ReLU, hands on no gradient whichever it takes.
            gaps = (two[..., 0] - two[..., 1])[two[..., 0] != 0]
            least = min(least, gaps.min().item() / scale)
        x = module(x)
    return least
