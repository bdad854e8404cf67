#pragma once

#include <type_traits>

#include "core/bf16.h"
#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

/// f(float{}) or f(bf16{}): the one place where an element type that is known at run time becomes a type.
/// Inlined, so that what a multiversioned function hands in is compiled for its target.
template <class F>
TRIAX_INLINE void with_element_type(DType dtype, const F& f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else
    f(float{});
}

/// The same with a choice that is known at run time: f(type, std::true_type) or f(type, std::false_type).
template <class F>
TRIAX_INLINE void with_element_type(DType dtype, bool choice, const F& f) {
  with_element_type(
      dtype, [&](auto type) __attribute__((always_inline)) {
        if (choice)
          f(type, std::true_type{});
        else
          f(type, std::false_type{});
      });
}

}  // namespace triax::cpu

/// Body of a multiversioned function: calls FUNCTION<T>(arguments) with the type of ELEMENTS.
#define TRIAX_TYPED(ELEMENTS, FUNCTION, ...)                                                          \
  ::triax::cpu::with_element_type((ELEMENTS).dtype(), [&](auto type) __attribute__((always_inline)) { \
    FUNCTION<decltype(type)>(__VA_ARGS__);                                                            \
  })
