// How kernels see activations: float32, strides in elements, the innermost dimension contiguous.
#pragma once
#include <cstdint>

namespace es {

// [T, C]: token t's row begins at data + t * stride.
struct Rows {
  const float* data;
  int64_t stride;
  const float* row(int64_t t) const { return data + t * stride; }
};
struct MutRows {
  float* data;
  int64_t stride;
  float* row(int64_t t) const { return data + t * stride; }
  operator Rows() const { return {data, stride}; }
};

// [T, H, D]: head h of token t begins at data + t * token_stride + h * head_stride.
struct Heads {
  const float* data;
  int64_t token_stride, head_stride;
  const float* at(int64_t t, int64_t h) const { return data + t * token_stride + h * head_stride; }
};
struct MutHeads {
  float* data;
  int64_t token_stride, head_stride;
  float* at(int64_t t, int64_t h) const { return data + t * token_stride + h * head_stride; }
  operator Heads() const { return {data, token_stride, head_stride}; }
};

}  // namespace es
