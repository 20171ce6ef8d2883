// One step of LeNet-5 as the operations that autograd would call, and a local task of such steps in one call, during
// which Python's interpreter is free.
#include <torch/extension.h>

using at::Tensor;

static const std::vector<std::vector<int64_t>> SHAPES = {
    {6, 1, 5, 5}, {6}, {16, 6, 5, 5}, {16}, {120, 400}, {120}, {84, 120}, {84}, {10, 84}, {10}};

static std::vector<Tensor> cut(const Tensor& flat) {
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (const auto& shape : SHAPES) {
    const auto count = c10::multiply_integers(shape);
    parts.push_back(flat.narrow(0, start, count).view(shape));
    start += count;
  }
  return parts;
}

static Tensor backward(const std::vector<Tensor>& w, const std::vector<Tensor>& g, const Tensor& x, const Tensor& y) {
  const auto c1 = at::convolution(x, w[0], w[1], {1, 1}, {2, 2}, {1, 1}, false, {0, 0}, 1);
  const auto [p1, i1] = at::max_pool2d_with_indices(c1, {2, 2}, {2, 2});
  const auto r1 = at::relu(p1);
  const auto c2 = at::convolution(r1, w[2], w[3], {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1);
  const auto [p2, i2] = at::max_pool2d_with_indices(c2, {2, 2}, {2, 2});
  const auto r2 = at::relu(p2);
  const auto flat = r2.flatten(1);
  const auto h3 = at::relu(at::addmm(w[5], flat, w[4].t()));
  const auto h4 = at::relu(at::addmm(w[7], h3, w[6].t()));
  const auto logs = at::log_softmax(at::addmm(w[9], h4, w[8].t()), 1);
  const auto [loss, weight] = at::nll_loss_forward(logs, y, {}, 1, -100);

  auto d = at::nll_loss_backward(at::ones({}), logs, y, {}, 1, -100, weight);
  d = at::_log_softmax_backward_data(d, logs, 1, at::kFloat);
  const auto dense = [&](int64_t layer, const Tensor& input) {
    auto into = g[layer], bias = g[layer + 1];
    at::mm_out(into, d.t(), input);
    at::sum_out(bias, d, 0);
    d = d.mm(w[layer]);
  };
  dense(8, h4);
  d = at::threshold_backward(d, h4, 0);
  dense(6, h3);
  d = at::threshold_backward(d, h3, 0);
  dense(4, flat);
  d = at::threshold_backward(d.view(r2.sizes()), r2, 0);
  d = at::max_pool2d_with_indices_backward(d, c2, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, i2);
  const auto [d1, gw2, gb2] = at::convolution_backward(
      d, r1, w[2], at::IntArrayRef({16}), {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1, {true, true, true});
  d = at::threshold_backward(d1, r1, 0);
  d = at::max_pool2d_with_indices_backward(d, c1, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, i1);
  const auto [none, gw1, gb1] = at::convolution_backward(
      d, x, w[0], at::IntArrayRef({6}), {1, 1}, {2, 2}, {1, 1}, false, {0, 0}, 1, {false, true, true});
  g[0].copy_(gw1);
  g[1].copy_(gb1);
  g[2].copy_(gw2);
  g[3].copy_(gb2);
  return loss;
}

// Fill `gradient` with that of the mean loss of `model`.
static Tensor gradient_of(const Tensor& model, const Tensor& gradient, const Tensor& images, const Tensor& labels) {
  const at::NoGradGuard guard;
  return backward(cut(model), cut(gradient), images, labels);
}

// Take a step on each part of `order` with `size` indices; return the sum of the losses.
static double train(const Tensor& model, const Tensor& gradient, const Tensor& images, const Tensor& labels,
                    const Tensor& order, int64_t size, double lr) {
  const at::NoGradGuard guard;
  const auto w = cut(model), g = cut(gradient);
  Tensor total = at::zeros({});
  for (const auto& index : order.split(size)) {
    const auto x = images.index_select(0, index);
    total = backward(w, g, x.as_strided(x.sizes(), {784, 1, 28, 1}), labels.index_select(0, index)) + total;
    model.add_(gradient, -lr);
  }
  return total.item<double>();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("gradient_of", &gradient_of, pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("train", &train, pybind11::call_guard<pybind11::gil_scoped_release>());
}
