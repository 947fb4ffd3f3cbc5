"""The networks of this project in PyTorch, layer by layer with the same names, for the scripts that compare.

A network is a list of layers as `dp_train::model::Layer` is written in JSON: {"layer": "conv2d", ...}. Its
nn.Sequential has the parameters in the order, shapes and names of ours ("0.weight", "0.bias", "2.weight", ...).
"""

from torch import nn


def convolutions(activation, channels):
    layers = []
    for inner, outer in [(channels, 32), (32, 64), (64, 128)]:
        for incoming in [inner, outer]:
            convolution = {"layer": "conv2d", "in_channels": incoming, "out_channels": outer}
            layers += [convolution | {"kernel": 3, "stride": 1, "padding": 1}, {"layer": activation}]
        layers += [{"layer": "max_pool2d", "kernel": 2, "stride": 2}]
    return layers + [{"layer": "flatten"}]


def linear(inner, outer):
    return {"layer": "linear", "in_features": inner, "out_features": outer}


def convnet(shape, classes=10):
    """The ConvNet of the paper, fitted to the size of the images as ours is."""
    features = 128 * (shape[1] // 8) * (shape[2] // 8)
    return convolutions("relu", shape[0]) + [linear(features, classes)]


def convnet_tanh(shape, classes=10):
    """The other ConvNet of the literature."""
    features = 128 * (shape[1] // 8) * (shape[2] // 8)
    dense = [linear(features, 128), {"layer": "tanh"}, linear(128, classes)]
    return convolutions("tanh", shape[0]) + dense


CIFAR = (3, 32, 32)
PRESETS = {"convnet": convnet, "convnet-tanh": convnet_tanh}


def sequential(layers, channels):
    """The nn.Sequential of a list of layers for images with this many channels."""
    modules = []
    for layer in layers:
        kind = layer["layer"]
        if kind == "conv2d":
            module = nn.Conv2d(
                layer["in_channels"],
                layer["out_channels"],
                layer["kernel"],
                layer["stride"],
                layer["padding"],
                groups=layer.get("groups", 1),
            )
            channels = layer["out_channels"]
        elif kind == "linear":
            module = nn.Linear(layer["in_features"], layer["out_features"])
        elif kind == "group_norm":
            module = nn.GroupNorm(layer["groups"], channels)
        elif kind == "max_pool2d":
            module = nn.MaxPool2d(layer["kernel"], layer["stride"])
        elif kind == "avg_pool2d":
            module = nn.AvgPool2d(layer["kernel"], layer["stride"])
        else:
            module = {"relu": nn.ReLU, "tanh": nn.Tanh, "flatten": nn.Flatten}[kind]()
        modules.append(module)
    return nn.Sequential(*modules)
