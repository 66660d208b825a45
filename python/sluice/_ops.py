"""_ops.py: the builders of the header as methods of Graph and of Tensor.

Written by python/generate.py from include/sluice.h: change these, not this file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Sequence, Tuple, Union

from . import _header as header
from ._library import dims

if TYPE_CHECKING:
    from .graph import Graph, Tensor

# One number for both directions, or (height, width).
Pair = Union[int, Tuple[int, int]]


class GraphOps:
    """Builders: each adds an operation to the graph and returns its result."""

    def _op(self, function: str, *arguments: Any) -> Tensor:
        raise NotImplementedError

    def _values(self, tensors: Sequence[Tensor]) -> tuple[Any, int]:
        raise NotImplementedError

    def _options(self, struct: Any, **fields: Any) -> Any:
        raise NotImplementedError

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Broadcasts as NumPy does."""
        return self._op("sluice_add", a, b)

    def subtract(self, a: Tensor, b: Tensor) -> Tensor:
        """a + (-1) b."""
        return self._op("sluice_subtract", a, b)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Broadcasts."""
        return self._op("sluice_multiply", a, b)

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return self._op("sluice_scale", x, factor)

    def linear(self, x: Tensor, features: int, name: str) -> Tensor:
        """y = x W^T + b with parameters "<name>.weight" [features, in] and "<name>.bias" [features], both uniform in
        +-1/sqrt(in), as PyTorch initialises them."""
        return self._op("sluice_linear", x, features, name)

    def linear_with(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, in_out: bool = False) -> Tensor:
        """The same with given parameters: weight [out, in], or [in, out] when in_out is true; bias may be None."""
        return self._op("sluice_linear_with", x, weight, bias, in_out)

    def matmul(self, a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        """Batched matrix multiplication over equal leading dimensions; transpose_a/b swap the operand's last two."""
        return self._op("sluice_matmul", a, b, transpose_a, transpose_b)

    def embedding(self, ids: Tensor, table: Tensor) -> Tensor:
        return self._op("sluice_embedding", ids, table)

    def bag(self, rows: Tensor, ends: Tensor, mean: bool = False) -> Tensor:
        """Sums, or means, of runs of the rows of x [.., C]: y [B, C]. `ends` [B], i32, is where each run ends, counted
        in rows, and the next begins: the row pointers of a sparse matrix in compressed rows (CSR) without the
        leading 0. A run without rows gives 0; rows behind the last run are not used. Ends that decrease, or lie
        behind the rows, are ERR_INPUT."""
        return self._op("sluice_bag", rows, ends, mean)

    def embedding_bag(self, ids: Tensor, ends: Tensor, table: Tensor, mean: bool = False) -> Tensor:
        """The same of the rows that ids [..] name in a table: lists of categories, as torch.nn.EmbeddingBag has them.
        Ids behind the last end must be rows of the table; of a sparse table they count as touched, so repeat one
        that is."""
        return self._op("sluice_embedding_bag", ids, ends, table, mean)

    def conv2d(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Pair | None = None,
        padding: Pair | None = None, dilation: Pair | None = None, groups: int | None = None,
    ) -> Tensor:
        """weight [O, C / groups, kh, kw], as PyTorch keeps it, bias [O] or None -> [N, H', W', O]."""
        options = self._options(
            header.sluice_conv_options, stride_h=stride, padding_h=padding, dilation_h=dilation, groups=groups,
        )
        return self._op("sluice_conv2d", x, weight, bias, options)

    def max_pool2d(
        self, x: Tensor, *, kernel: Pair | None = None, stride: Pair | None = None, padding: Pair | None = None,
        ceil_mode: bool | None = None, count_include_pad: bool | None = None,
    ) -> Tensor:
        """x [N, H, W, C] -> [N, H', W', C]."""
        options = self._options(
            header.sluice_pool_options, kernel_h=kernel, stride_h=stride, padding_h=padding, ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )
        return self._op("sluice_max_pool2d", x, options)

    def avg_pool2d(
        self, x: Tensor, *, kernel: Pair | None = None, stride: Pair | None = None, padding: Pair | None = None,
        ceil_mode: bool | None = None, count_include_pad: bool | None = None,
    ) -> Tensor:
        options = self._options(
            header.sluice_pool_options, kernel_h=kernel, stride_h=stride, padding_h=padding, ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )
        return self._op("sluice_avg_pool2d", x, options)

    def global_avg_pool(self, x: Tensor) -> Tensor:
        """x [N, .., C] -> [N, C]: the mean of all places."""
        return self._op("sluice_global_avg_pool", x)

    def flatten(self, x: Tensor) -> Tensor:
        """x [N, .., C] -> [N, C * ..], channel by channel, as PyTorch flattens [N, C, ..]: its weights of the linear
        that follows fit."""
        return self._op("sluice_flatten", x)

    def relu(self, x: Tensor) -> Tensor:
        return self._op("sluice_relu", x)

    def gelu(self, x: Tensor, exact: bool = True) -> Tensor:
        """exact: erf; otherwise tanh."""
        return self._op("sluice_gelu", x, exact)

    def silu(self, x: Tensor) -> Tensor:
        return self._op("sluice_silu", x)

    def tanh(self, x: Tensor) -> Tensor:
        return self._op("sluice_tanh", x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self._op("sluice_sigmoid", x)

    def swiglu(self, x: Tensor) -> Tensor:
        """x [.., 2F] -> [.., F]: silu of a row's first half times its second half."""
        return self._op("sluice_swiglu", x)

    def geglu(self, x: Tensor, exact: bool = True) -> Tensor:
        """The same with the gelu of the first half; exact: erf, otherwise tanh."""
        return self._op("sluice_geglu", x, exact)

    def softcap(self, x: Tensor, cap: float) -> Tensor:
        """cap * tanh(x / cap): keeps numbers within +-cap."""
        return self._op("sluice_softcap", x, cap)

    def softmax(self, x: Tensor) -> Tensor:
        """Over the last dimension."""
        return self._op("sluice_softmax", x)

    def log_softmax(self, x: Tensor) -> Tensor:
        """Its logarithm."""
        return self._op("sluice_log_softmax", x)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, epsilon: float = 1e-5) -> Tensor:
        """Bias may be None."""
        return self._op("sluice_layer_norm", x, weight, bias, epsilon)

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float = 1e-5, offset: float = 0.0) -> Tensor:
        """x * rstd * (offset + weight). offset is 0 or 1: with 1 weights are differences from 1 and begin at 0, as
        Gemma's."""
        return self._op("sluice_rms_norm_offset", x, weight, epsilon, offset)

    def batch_norm(
        self, x: Tensor, name: str, *, epsilon: float | None = None, momentum: float | None = None,
        relu: bool | None = None, residual: Tensor | None = None, all_ranks: bool | None = None,
    ) -> Tensor:
        """x [.., C] -> the same shape: each channel less its mean, divided by its deviation, times "<name>.weight" [C]
        (all 1), plus "<name>.bias" [C] (all 0). In training, mean and deviation are those of the micro-batch, of
        which there must be at least 2 rows; evaluation takes the running statistics. These are values that the
        engine keeps and does not train, as PyTorch does: "<name>.running_mean" [C], from 0, "<name>.running_var"
        [C], from 1, both f32, and "<name>.num_batches_tracked", which counts micro-batches. Every micro-batch of a
        step changes them, in global order, also where the step is skipped because its gradient is not finite. They
        are in checkpoints, in weights files and in the hash of the state. With all_ranks, the micro-batches that
        the ranks compute at the same time count as one: N ranks with m samples each (dimension 0 of x) have the
        statistics of one rank with N m, bit for bit, and these change the running ones once. A batch norm whose
        weight and bias are both frozen (freeze) stays as it was learned: training takes the running statistics,
        too, and leaves them as they are. options may be NULL."""
        options = self._options(
            header.sluice_batch_norm_options, epsilon=epsilon, momentum=momentum, relu=relu, residual=residual,
            all_ranks=all_ranks,
        )
        return self._op("sluice_batch_norm", x, name, options)

    def group_norm(self, x: Tensor, groups: int, name: str, epsilon: float = 1e-5) -> Tensor:
        """x [N, .., C] -> the same shape: of each sample, the channels of each of `groups` groups of neighbours are
        normalised together; then as batch norm with "<name>.weight" and "<name>.bias". Training and evaluation are
        alike."""
        return self._op("sluice_group_norm", x, groups, name, epsilon)

    def qk_norm(
        self, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, heads: int, kv_heads: int, epsilon: float = 1e-5,
        offset: float = 0.0,
    ) -> Tensor:
        """qkv [B,T,(heads+2*kv_heads)*D] -> the same shape: the RMS norm of each query head with q_weight [D] and of
        each key head with k_weight [D]; value heads pass. To be used before rotary."""
        return self._op("sluice_qk_norm", qkv, q_weight, k_weight, heads, kv_heads, epsilon, offset)

    def rotary(
        self, x: Tensor, positions: Tensor | None = None, *, heads: int | None = None, head_width: int | None = None,
        rotated: int | None = None, base: float | None = None,
        scaling: Literal["default", "linear", "dynamic", "llama3", "yarn"] | None = None, factor: float | None = None,
        context: int | None = None, low: float | None = None, high: float | None = None,
        attention_factor: float | None = None, mscale: float | None = None, mscale_all_dim: float | None = None,
        fractional: bool | None = None,
    ) -> Tensor:
        """Rotates the first `heads` heads of width head_width in each row of x [B, T, W], for positions 0 .. T-1. As
        rotary. positions [B, T] i32 says where each row stands, for packed documents; None: at 0 .. T-1."""
        options = self._options(
            header.sluice_rotary_options, heads=heads, head_width=head_width, rotated=rotated, base=base,
            scaling=scaling, factor=factor, context=context, low=low, high=high, attention_factor=attention_factor,
            mscale=mscale, mscale_all_dim=mscale_all_dim, fractional=fractional,
        )
        return self._op("sluice_rotary_with", x, positions, options)

    def attention(
        self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None, positions: Tensor | None = None, *,
        heads: int | None = None, kv_heads: int | None = None, causal: bool | None = None, window: int | None = None,
        softcap: float | None = None, scale: float | None = None,
    ) -> Tensor:
        """q [B,T,heads*D], k and v [B,S,kv_heads*D]. kv_heads divides heads. Scores are scaled by 1/sqrt(D). Attention
        with options. q, k and v as for attention; with k and v None, q is as for attention_packed. positions, or
        None: an input [B,T] i32, the position of each element in its document (several documents lie in a row, each
        counted from 0), so that query t sees no key before t - positions[t]. Where attention is not causal it is an
        input [B] i32 instead, the length of each row: the keys behind it are not seen."""
        options = self._options(
            header.sluice_attention_options, heads=heads, kv_heads=kv_heads, causal=causal, window=window,
            softcap=softcap, scale=scale,
        )
        return self._op("sluice_attention_with", q, k, v, positions, options)

    def dropout(self, x: Tensor, p: float) -> Tensor:
        return self._op("sluice_dropout", x, p)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """One dim may be -1."""
        return self._op("sluice_reshape", x, *dims(shape))

    def split(self, x: Tensor, axis: int, start: int, size: int) -> Tensor:
        return self._op("sluice_split", x, axis, start, size)

    def add_part(self, x: Tensor, part: Tensor, axis: int, start: int) -> Tensor:
        """x with `part` added to its elements from `start` on along `axis`."""
        return self._op("sluice_add_part", x, part, axis, start)

    def concat(self, values: Sequence[Tensor], axis: int) -> Tensor:
        return self._op("sluice_concat", *self._values(values), axis)

    def cross_entropy(
        self, logits: Tensor, targets: Tensor, ignore_index: int = -100, softcap: float = 0.0, smoothing: float = 0.0,
    ) -> Tensor:
        """Mean over the rows whose target is not ignore_index. logits [.., V], targets [..] i32. Both with label
        smoothing, 0 to 1: a target's class counts 1 - smoothing, and smoothing is spread evenly over all classes.
        0: none."""
        return self._op("sluice_cross_entropy_smoothed", logits, targets, ignore_index, softcap, smoothing)

    def linear_cross_entropy(
        self, x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, ignore_index: int = -100,
        softcap: float = 0.0, smoothing: float = 0.0,
    ) -> Tensor:
        """The cross entropy of the logits x weight^T, computed in parts: x [.., I], weight [V, I]. The same loss as a
        linear and its cross entropy in less memory, because the logits never exist as a whole. The last one with a
        bias, as BERT's head has it: of the logits x weight^T + bias, bias [V] or None."""
        return self._op("sluice_linear_cross_entropy_with", x, weight, bias, targets, ignore_index, softcap, smoothing)

    def mse(self, y: Tensor, target: Tensor) -> Tensor:
        return self._op("sluice_mse", y, target)

    def bce_with_logits(self, y: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Binary cross entropy of logits y with targets 0 to 1 of the same shape: the mean over all elements, each
        first multiplied with its weight. weight: of the same shape, or None. All are f32, and every element is a
        target."""
        return self._op("sluice_bce_with_logits", y, target, weight)

    def gru(
        self, gates_x: Tensor, weight: Tensor, bias: Tensor, lengths: Tensor | None = None, reverse: bool = False,
    ) -> Tensor:
        """Gated recurrent unit as PyTorch's, over the frames of sequences. gates_x [B, T, 3H]: the input's part of the
        gates r, z, n with its bias, made by a linear before; weight [3H, H] and bias [3H]: weight_hh and bias_hh.
        Gives the states [B, T, H]. lengths [B] i32: frames of each sequence that count, 0 to T; states behind them
        are 0; None: all. reverse: from the last frame that counts to the first."""
        return self._op("sluice_gru", gates_x, weight, bias, lengths, reverse)

    def ctc_loss(
        self, logits: Tensor, labels: Tensor, lengths: Tensor, blank: int = 0, zero_infinity: bool = False,
    ) -> Tensor:
        """Connectionist temporal classification, as PyTorch's ctc_loss of log_softmax(logits) with reduction "mean":
        the mean over sequences of -log p(labels) / number of labels. logits [B, T, V]; labels [B, S] i32, in each
        row -1 behind the last one; lengths [B] i32: frames of each sequence that count. A sequence needs a frame
        for each label and one between equal neighbours: a batch without them is refused, or with zero_infinity such
        a sequence has loss 0 and no gradient. Every sequence is a target, also one without labels."""
        return self._op("sluice_ctc_loss", logits, labels, lengths, blank, zero_infinity)

    def sum(self, x: Tensor) -> Tensor:
        return self._op("sluice_sum", x)

    def mean(self, x: Tensor) -> Tensor:
        return self._op("sluice_mean", x)


class TensorOps:
    """The same builders as methods of their first operand."""

    graph: Graph

    def _tensor(self) -> Tensor:
        raise NotImplementedError

    def add(self, b: Tensor) -> Tensor:
        """As Graph.add."""
        return self.graph.add(self._tensor(), b)

    def subtract(self, b: Tensor) -> Tensor:
        """As Graph.subtract."""
        return self.graph.subtract(self._tensor(), b)

    def multiply(self, b: Tensor) -> Tensor:
        """As Graph.multiply."""
        return self.graph.multiply(self._tensor(), b)

    def scale(self, factor: float) -> Tensor:
        """As Graph.scale."""
        return self.graph.scale(self._tensor(), factor)

    def linear(self, features: int, name: str) -> Tensor:
        """As Graph.linear."""
        return self.graph.linear(self._tensor(), features, name)

    def linear_with(self, weight: Tensor, bias: Tensor | None = None, in_out: bool = False) -> Tensor:
        """As Graph.linear_with."""
        return self.graph.linear_with(self._tensor(), weight, bias, in_out)

    def matmul(self, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        """As Graph.matmul."""
        return self.graph.matmul(self._tensor(), b, transpose_a, transpose_b)

    def embedding(self, table: Tensor) -> Tensor:
        """As Graph.embedding."""
        return self.graph.embedding(self._tensor(), table)

    def bag(self, ends: Tensor, mean: bool = False) -> Tensor:
        """As Graph.bag."""
        return self.graph.bag(self._tensor(), ends, mean)

    def embedding_bag(self, ends: Tensor, table: Tensor, mean: bool = False) -> Tensor:
        """As Graph.embedding_bag."""
        return self.graph.embedding_bag(self._tensor(), ends, table, mean)

    def conv2d(
        self, weight: Tensor, bias: Tensor | None = None, *, stride: Pair | None = None, padding: Pair | None = None,
        dilation: Pair | None = None, groups: int | None = None,
    ) -> Tensor:
        """As Graph.conv2d."""
        return self.graph.conv2d(
            self._tensor(), weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
        )

    def max_pool2d(
        self, *, kernel: Pair | None = None, stride: Pair | None = None, padding: Pair | None = None,
        ceil_mode: bool | None = None, count_include_pad: bool | None = None,
    ) -> Tensor:
        """As Graph.max_pool2d."""
        return self.graph.max_pool2d(
            self._tensor(), kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )

    def avg_pool2d(
        self, *, kernel: Pair | None = None, stride: Pair | None = None, padding: Pair | None = None,
        ceil_mode: bool | None = None, count_include_pad: bool | None = None,
    ) -> Tensor:
        """As Graph.avg_pool2d."""
        return self.graph.avg_pool2d(
            self._tensor(), kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )

    def global_avg_pool(self) -> Tensor:
        """As Graph.global_avg_pool."""
        return self.graph.global_avg_pool(self._tensor())

    def flatten(self) -> Tensor:
        """As Graph.flatten."""
        return self.graph.flatten(self._tensor())

    def relu(self) -> Tensor:
        """As Graph.relu."""
        return self.graph.relu(self._tensor())

    def gelu(self, exact: bool = True) -> Tensor:
        """As Graph.gelu."""
        return self.graph.gelu(self._tensor(), exact)

    def silu(self) -> Tensor:
        """As Graph.silu."""
        return self.graph.silu(self._tensor())

    def tanh(self) -> Tensor:
        """As Graph.tanh."""
        return self.graph.tanh(self._tensor())

    def sigmoid(self) -> Tensor:
        """As Graph.sigmoid."""
        return self.graph.sigmoid(self._tensor())

    def swiglu(self) -> Tensor:
        """As Graph.swiglu."""
        return self.graph.swiglu(self._tensor())

    def geglu(self, exact: bool = True) -> Tensor:
        """As Graph.geglu."""
        return self.graph.geglu(self._tensor(), exact)

    def softcap(self, cap: float) -> Tensor:
        """As Graph.softcap."""
        return self.graph.softcap(self._tensor(), cap)

    def softmax(self) -> Tensor:
        """As Graph.softmax."""
        return self.graph.softmax(self._tensor())

    def log_softmax(self) -> Tensor:
        """As Graph.log_softmax."""
        return self.graph.log_softmax(self._tensor())

    def layer_norm(self, weight: Tensor, bias: Tensor | None = None, epsilon: float = 1e-5) -> Tensor:
        """As Graph.layer_norm."""
        return self.graph.layer_norm(self._tensor(), weight, bias, epsilon)

    def rms_norm(self, weight: Tensor, epsilon: float = 1e-5, offset: float = 0.0) -> Tensor:
        """As Graph.rms_norm."""
        return self.graph.rms_norm(self._tensor(), weight, epsilon, offset)

    def batch_norm(
        self, name: str, *, epsilon: float | None = None, momentum: float | None = None, relu: bool | None = None,
        residual: Tensor | None = None, all_ranks: bool | None = None,
    ) -> Tensor:
        """As Graph.batch_norm."""
        return self.graph.batch_norm(
            self._tensor(), name, epsilon=epsilon, momentum=momentum, relu=relu, residual=residual,
            all_ranks=all_ranks,
        )

    def group_norm(self, groups: int, name: str, epsilon: float = 1e-5) -> Tensor:
        """As Graph.group_norm."""
        return self.graph.group_norm(self._tensor(), groups, name, epsilon)

    def qk_norm(
        self, q_weight: Tensor, k_weight: Tensor, heads: int, kv_heads: int, epsilon: float = 1e-5,
        offset: float = 0.0,
    ) -> Tensor:
        """As Graph.qk_norm."""
        return self.graph.qk_norm(self._tensor(), q_weight, k_weight, heads, kv_heads, epsilon, offset)

    def rotary(
        self, positions: Tensor | None = None, *, heads: int | None = None, head_width: int | None = None,
        rotated: int | None = None, base: float | None = None,
        scaling: Literal["default", "linear", "dynamic", "llama3", "yarn"] | None = None, factor: float | None = None,
        context: int | None = None, low: float | None = None, high: float | None = None,
        attention_factor: float | None = None, mscale: float | None = None, mscale_all_dim: float | None = None,
        fractional: bool | None = None,
    ) -> Tensor:
        """As Graph.rotary."""
        return self.graph.rotary(
            self._tensor(), positions, heads=heads, head_width=head_width, rotated=rotated, base=base,
            scaling=scaling, factor=factor, context=context, low=low, high=high, attention_factor=attention_factor,
            mscale=mscale, mscale_all_dim=mscale_all_dim, fractional=fractional,
        )

    def attention(
        self, k: Tensor | None = None, v: Tensor | None = None, positions: Tensor | None = None, *,
        heads: int | None = None, kv_heads: int | None = None, causal: bool | None = None, window: int | None = None,
        softcap: float | None = None, scale: float | None = None,
    ) -> Tensor:
        """As Graph.attention."""
        return self.graph.attention(
            self._tensor(), k, v, positions, heads=heads, kv_heads=kv_heads, causal=causal, window=window,
            softcap=softcap, scale=scale,
        )

    def dropout(self, p: float) -> Tensor:
        """As Graph.dropout."""
        return self.graph.dropout(self._tensor(), p)

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """As Graph.reshape."""
        return self.graph.reshape(self._tensor(), shape)

    def split(self, axis: int, start: int, size: int) -> Tensor:
        """As Graph.split."""
        return self.graph.split(self._tensor(), axis, start, size)

    def add_part(self, part: Tensor, axis: int, start: int) -> Tensor:
        """As Graph.add_part."""
        return self.graph.add_part(self._tensor(), part, axis, start)

    def cross_entropy(
        self, targets: Tensor, ignore_index: int = -100, softcap: float = 0.0, smoothing: float = 0.0,
    ) -> Tensor:
        """As Graph.cross_entropy."""
        return self.graph.cross_entropy(self._tensor(), targets, ignore_index, softcap, smoothing)

    def linear_cross_entropy(
        self, weight: Tensor, targets: Tensor, bias: Tensor | None = None, ignore_index: int = -100,
        softcap: float = 0.0, smoothing: float = 0.0,
    ) -> Tensor:
        """As Graph.linear_cross_entropy."""
        return self.graph.linear_cross_entropy(self._tensor(), weight, targets, bias, ignore_index, softcap, smoothing)

    def mse(self, target: Tensor) -> Tensor:
        """As Graph.mse."""
        return self.graph.mse(self._tensor(), target)

    def bce_with_logits(self, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """As Graph.bce_with_logits."""
        return self.graph.bce_with_logits(self._tensor(), target, weight)

    def gru(self, weight: Tensor, bias: Tensor, lengths: Tensor | None = None, reverse: bool = False) -> Tensor:
        """As Graph.gru."""
        return self.graph.gru(self._tensor(), weight, bias, lengths, reverse)

    def ctc_loss(self, labels: Tensor, lengths: Tensor, blank: int = 0, zero_infinity: bool = False) -> Tensor:
        """As Graph.ctc_loss."""
        return self.graph.ctc_loss(self._tensor(), labels, lengths, blank, zero_infinity)

    def sum(self) -> Tensor:
        """As Graph.sum."""
        return self.graph.sum(self._tensor())

    def mean(self) -> Tensor:
        """As Graph.mean."""
        return self.graph.mean(self._tensor())
