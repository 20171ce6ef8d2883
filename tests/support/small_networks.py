"""One of each network, small, with the inputs that its paper gives it."""

SHAPES = {
    "alexnet(width=0.0625)": (3, 32, 32),
    "celeba_cnn(width=0.3)": (3, 84, 84),
    "fedasmu_cnn(width=0.25)": (3, 32, 32),
    "fedasync_cnn(width=0.125)": (3, 24, 24),
    "fedluck_cnn(width=0.25)": (1, 32, 32),
    "lenet5": (3, 32, 32),
    "linear": (1, 28, 28),
    "lstm(width=0.25)": (1, 32, 32),
    "resnet18(width=0.0625)": (3, 32, 32),
    "resnet20(width=0.25)": (3, 32, 32),
    "textcnn(vocabulary=100, width=0.25)": (20,),
    "vgg11(width=0.0625)": (3, 32, 32),
    "vgg11s(width=0.25)": (3, 32, 32),
    "wkafl_cnn(width=0.25)": (1, 28, 28),
}
