"""A row for each operator and opset from which on its signature is another one.

Written by .ci/write_signatures.py. ``signature_table`` says what a row means.
"""

__all__ = ["ROWS"]

ROWS = """\
Abs 13 s 1-1
Acos 7 s 1-1
Acosh 9 s 1-1
Add 13 ss 1-1
AffineGrid 20 ss 1-1 align_corners:int
And 7 ss 1-1
ArgMax 13 s 1-1 axis:int keepdims:int select_last_index:int
ArgMin 13 s 1-1 axis:int keepdims:int select_last_index:int
Asin 7 s 1-1
Asinh 9 s 1-1
Atan 7 s 1-1
Atanh 9 s 1-1
Attention 23 sssooo 1-4 is_causal:int kv_num_heads:int q_num_heads:int qk_matmul_output_mode:int
  scale:float softcap:float softmax_precision:int
Attention 24 sssoooo 1-4 is_causal:int kv_num_heads:int q_num_heads:int qk_matmul_output_mode:int
  scale:float softcap:float softmax_precision:int
AveragePool 11 s 1-1 auto_pad:string ceil_mode:int count_include_pad:int kernel_shape:ints!
  pads:ints strides:ints
AveragePool 19 s 1-1 auto_pad:string ceil_mode:int count_include_pad:int dilations:ints
  kernel_shape:ints! pads:ints strides:ints
BatchNormalization 9 sssss 1-5 epsilon:float momentum:float
BatchNormalization 14 sssss 1-3 epsilon:float momentum:float training_mode:int
Bernoulli 15 s 1-1 dtype:int seed:float
BitCast 26 s 1-1 to:int!
BitShift 11 ss 1-1 direction:string!
BitwiseAnd 18 ss 1-1
BitwiseNot 18 s 1-1
BitwiseOr 18 ss 1-1
BitwiseXor 18 ss 1-1
BlackmanWindow 17 s 1-1 output_datatype:int periodic:int
Cast 13 s 1-1 to:int!
Cast 19 s 1-1 saturate:int to:int!
Cast 24 s 1-1 round_mode:string saturate:int to:int!
CastLike 15 ss 1-1
CastLike 19 ss 1-1 saturate:int
CastLike 24 ss 1-1 round_mode:string saturate:int
Ceil 13 s 1-1
Celu 12 s 1-1 alpha:float
CenterCropPad 18 ss 1-1 axes:ints
Clip 13 soo 1-1
Col2Im 18 sss 1-1 dilations:ints pads:ints strides:ints
Compress 11 ss 1-1 axis:int
Concat 13 v1 1-1 axis:int!
ConcatFromSequence 11 s 1-1 axis:int! new_axis:int
Constant 13 - 1-1 sparse_value:sparse_tensor value:tensor value_float:float value_floats:floats
  value_int:int value_ints:ints value_string:string value_strings:strings
ConstantOfShape 9 s 1-1 value:tensor
Conv 11 sso 1-1 auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints strides:ints
ConvInteger 10 ssoo 1-1 auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints
  strides:ints
ConvTranspose 11 sso 1-1 auto_pad:string dilations:ints group:int kernel_shape:ints
  output_padding:ints output_shape:ints pads:ints strides:ints
Cos 7 s 1-1
Cosh 9 s 1-1
CumProd 26 ss 1-1 exclusive:int reverse:int
CumSum 11 ss 1-1 exclusive:int reverse:int
DFT 17 so 1-1 axis:int inverse:int onesided:int
DFT 20 soo 1-1 inverse:int onesided:int
DeformConv 19 sssoo 1-1 dilations:ints group:int kernel_shape:ints offset_group:int pads:ints
  strides:ints
DepthToSpace 13 s 1-1 blocksize:int! mode:string
DequantizeLinear 13 sso 1-1 axis:int
DequantizeLinear 21 sso 1-1 axis:int block_size:int
DequantizeLinear 23 sso 1-1 axis:int block_size:int output_dtype:int
Det 11 s 1-1
Div 13 ss 1-1
Dropout 13 soo 1-2 seed:int
DynamicQuantizeLinear 11 s 3-3
Einsum 12 v1 1-1 equation:string!
Elu 6 s 1-1 alpha:float
Equal 13 ss 1-1
Erf 13 s 1-1
Exp 13 s 1-1
Expand 13 ss 1-1
EyeLike 9 s 1-1 dtype:int k:int
Flatten 13 s 1-1 axis:int
Floor 13 s 1-1
GRU 7 sssooo 0-2 activation_alpha:floats activation_beta:floats activations:strings clip:float
  direction:string hidden_size:int linear_before_reset:int
GRU 14 sssooo 0-2 activation_alpha:floats activation_beta:floats activations:strings clip:float
  direction:string hidden_size:int layout:int linear_before_reset:int
Gather 13 ss 1-1 axis:int
GatherElements 13 ss 1-1 axis:int
GatherND 13 ss 1-1 batch_dims:int
Gelu 20 s 1-1 approximate:string
Gemm 13 sso 1-1 alpha:float beta:float transA:int transB:int
GlobalAveragePool 1 s 1-1
GlobalLpPool 2 s 1-1 p:int
GlobalMaxPool 1 s 1-1
Greater 13 ss 1-1
GreaterOrEqual 12 ss 1-1
GridSample 16 ss 1-1 align_corners:int mode:string padding_mode:string
GroupNormalization 18 sss 1-1 epsilon:float num_groups:int!
GroupNormalization 21 sss 1-1 epsilon:float num_groups:int! stash_type:int
HammingWindow 17 s 1-1 output_datatype:int periodic:int
HannWindow 17 s 1-1 output_datatype:int periodic:int
HardSigmoid 6 s 1-1 alpha:float beta:float
HardSwish 14 s 1-1
Hardmax 13 s 1-1 axis:int
Identity 13 s 1-1
If 13 s 1-* else_branch:graph! then_branch:graph!
ImageDecoder 20 s 1-1 pixel_format:string
InstanceNormalization 6 sss 1-1 epsilon:float
IsInf 10 s 1-1 detect_negative:int detect_positive:int
IsNaN 13 s 1-1
LRN 13 s 1-1 alpha:float beta:float bias:float size:int!
LSTM 7 sssooooo 0-3 activation_alpha:floats activation_beta:floats activations:strings clip:float
  direction:string hidden_size:int input_forget:int
LSTM 14 sssooooo 0-3 activation_alpha:floats activation_beta:floats activations:strings clip:float
  direction:string hidden_size:int input_forget:int layout:int
LayerNormalization 17 sso 1-3 axis:int epsilon:float stash_type:int
LeakyRelu 6 s 1-1 alpha:float
Less 13 ss 1-1
LessOrEqual 12 ss 1-1
Log 13 s 1-1
LogSoftmax 13 s 1-1 axis:int
Loop 13 oov0 1-* body:graph!
LpNormalization 1 s 1-1 axis:int p:int
LpPool 11 s 1-1 auto_pad:string kernel_shape:ints! p:int pads:ints strides:ints
LpPool 18 s 1-1 auto_pad:string ceil_mode:int dilations:ints kernel_shape:ints! p:int pads:ints
  strides:ints
MatMul 13 ss 1-1
MatMulInteger 10 ssoo 1-1
Max 13 v1 1-1
MaxPool 12 s 1-2 auto_pad:string ceil_mode:int dilations:ints kernel_shape:ints! pads:ints
  storage_order:int strides:ints
MaxRoiPool 1 ss 1-1 pooled_shape:ints! spatial_scale:float
MaxUnpool 11 sso 1-1 kernel_shape:ints! pads:ints strides:ints
Mean 13 v1 1-1
MeanVarianceNormalization 13 s 1-1 axes:ints
MelWeightMatrix 17 sssss 1-1 output_datatype:int
Min 13 v1 1-1
Mish 18 s 1-1
Mod 13 ss 1-1 fmod:int
Mul 13 ss 1-1
Multinomial 7 s 1-1 dtype:int sample_size:int seed:float
Neg 13 s 1-1
NegativeLogLikelihoodLoss 13 sso 1-1 ignore_index:int reduction:string
NonMaxSuppression 11 ssooo 1-1 center_point_box:int
NonZero 13 s 1-1
Not 1 s 1-1
OneHot 11 sss 1-1 axis:int
Optional 15 o 1-1 type:type_proto
OptionalGetElement 15 s 1-1
OptionalHasElement 15 s 1-1
OptionalHasElement 18 o 1-1
Or 7 ss 1-1
PRelu 9 ss 1-1
Pad 13 sso 1-1 mode:string
Pad 18 ssoo 1-1 mode:string
Pow 13 ss 1-1
QLinearConv 10 sssssssso 1-1 auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints
  strides:ints
QLinearMatMul 10 ssssssss 1-1
QuantizeLinear 13 sso 1-1 axis:int
QuantizeLinear 19 sso 1-1 axis:int saturate:int
QuantizeLinear 21 sso 1-1 axis:int block_size:int output_dtype:int saturate:int
QuantizeLinear 23 sso 1-1 axis:int block_size:int output_dtype:int precision:int saturate:int
RMSNormalization 23 ss 1-1 axis:int epsilon:float stash_type:int
RNN 7 sssooo 0-2 activation_alpha:floats activation_beta:floats activations:strings clip:float
  direction:string hidden_size:int
RNN 14 sssooo 0-2 activation_alpha:floats activation_beta:floats activations:strings clip:float
  direction:string hidden_size:int layout:int
RandomNormal 1 - 1-1 dtype:int mean:float scale:float seed:float shape:ints!
RandomNormalLike 1 s 1-1 dtype:int mean:float scale:float seed:float
RandomUniform 1 - 1-1 dtype:int high:float low:float seed:float shape:ints!
RandomUniformLike 1 s 1-1 dtype:int high:float low:float seed:float
Range 11 sss 1-1
Reciprocal 13 s 1-1
ReduceL1 13 s 1-1 axes:ints keepdims:int
ReduceL1 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceL2 13 s 1-1 axes:ints keepdims:int
ReduceL2 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceLogSum 13 s 1-1 axes:ints keepdims:int
ReduceLogSum 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceLogSumExp 13 s 1-1 axes:ints keepdims:int
ReduceLogSumExp 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceMax 13 s 1-1 axes:ints keepdims:int
ReduceMax 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceMean 13 s 1-1 axes:ints keepdims:int
ReduceMean 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceMin 13 s 1-1 axes:ints keepdims:int
ReduceMin 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceProd 13 s 1-1 axes:ints keepdims:int
ReduceProd 18 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceSum 13 so 1-1 keepdims:int noop_with_empty_axes:int
ReduceSumSquare 13 s 1-1 axes:ints keepdims:int
ReduceSumSquare 18 so 1-1 keepdims:int noop_with_empty_axes:int
RegexFullMatch 20 s 1-1 pattern:string
Relu 13 s 1-1
Reshape 13 ss 1-1
Reshape 14 ss 1-1 allowzero:int
Resize 13 sooo 1-1 coordinate_transformation_mode:string cubic_coeff_a:float exclude_outside:int
  extrapolation_value:float mode:string nearest_mode:string
Resize 18 sooo 1-1 antialias:int axes:ints coordinate_transformation_mode:string
  cubic_coeff_a:float exclude_outside:int extrapolation_value:float keep_aspect_ratio_policy:string
  mode:string nearest_mode:string
ReverseSequence 10 ss 1-1 batch_axis:int time_axis:int
RoiAlign 10 sss 1-1 mode:string output_height:int output_width:int sampling_ratio:int
  spatial_scale:float
RoiAlign 16 sss 1-1 coordinate_transformation_mode:string mode:string output_height:int
  output_width:int sampling_ratio:int spatial_scale:float
RotaryEmbedding 23 ssso 1-1 interleaved:int num_heads:int rotary_embedding_dim:int
Round 11 s 1-1
STFT 17 ssoo 1-1 onesided:int
Scan 11 v1 1-* body:graph! num_scan_inputs:int! scan_input_axes:ints scan_input_directions:ints
  scan_output_axes:ints scan_output_directions:ints
Scatter 11 sss 1-1 axis:int
ScatterElements 13 sss 1-1 axis:int
ScatterElements 16 sss 1-1 axis:int reduction:string
ScatterND 13 sss 1-1
ScatterND 16 sss 1-1 reduction:string
Selu 6 s 1-1 alpha:float gamma:float
SequenceAt 11 ss 1-1
SequenceConstruct 11 v1 1-1
SequenceEmpty 11 - 1-1 dtype:int
SequenceErase 11 so 1-1
SequenceInsert 11 sso 1-1
SequenceLength 11 s 1-1
SequenceMap 17 sv0 1-* body:graph!
Shape 13 s 1-1
Shape 15 s 1-1 end:int start:int
Shrink 9 s 1-1 bias:float lambd:float
Sigmoid 13 s 1-1
Sign 13 s 1-1
Sin 7 s 1-1
Sinh 9 s 1-1
Size 13 s 1-1
Slice 13 sssoo 1-1
Softmax 13 s 1-1 axis:int
SoftmaxCrossEntropyLoss 13 sso 1-2 ignore_index:int reduction:string
Softplus 1 s 1-1
Softsign 1 s 1-1
SpaceToDepth 13 s 1-1 blocksize:int!
Split 13 so 1-* axis:int
Split 18 so 1-* axis:int num_outputs:int
SplitToSequence 11 so 1-1 axis:int keepdims:int
Sqrt 13 s 1-1
Squeeze 13 so 1-1
StringConcat 20 ss 1-1
StringNormalizer 10 s 1-1 case_change_action:string is_case_sensitive:int locale:string
  stopwords:strings
StringSplit 20 s 2-2 delimiter:string maxsplit:int
Sub 13 ss 1-1
Sum 13 v1 1-1
Swish 24 s 1-1 alpha:float
Tan 7 s 1-1
Tanh 13 s 1-1
TensorScatter 24 sso 1-1 axis:int mode:string
TfIdfVectorizer 9 s 1-1 max_gram_length:int! max_skip_count:int! min_gram_length:int! mode:string!
  ngram_counts:ints! ngram_indexes:ints! pool_int64s:ints pool_strings:strings weights:floats
ThresholdedRelu 10 s 1-1 alpha:float
Tile 13 ss 1-1
TopK 11 ss 2-2 axis:int largest:int sorted:int
Transpose 13 s 1-1 perm:ints
Trilu 14 so 1-1 upper:int
Unique 11 s 1-4 axis:int sorted:int
Unsqueeze 13 ss 1-1
Upsample 10 ss 1-1 mode:string
Where 9 sss 1-1
Xor 7 ss 1-1
"""
