#pragma once

#include <string>
#include <vector>

#include "parallel/grid.h"
#include "parallel/layout.h"

namespace triax {

/// Cuts one dimension of a parameter over one axis of the grid. With fewer parts than the axis has ranks,
/// adjacent ranks hold copies of the same part (key and value heads, when there are fewer of them than tensor
/// ranks).
struct Shard {
  int dim = 0;
  std::string axis = "tp";
  int parts = 0;  ///< 0: as many as the axis has ranks
};

/// Initial values, a function of (seed, name, global index): the same bits on every grid.
struct Init {
  enum class Kind { zeros, ones, normal } kind = Kind::zeros;
  float stddev = 0;
};

/// Everything about one logical parameter, said once, beside its layer. The local box, initial values,
/// optimizer group, which copies count in the gradient norm, the ZeRO slice, the box in the checkpoint and
/// the memory report derive from it.
struct ParamSpec {
  std::string name;           ///< logical name, as in DESIGN: "layers.3.attention.q.weight"
  Shape global;               ///< matrices are [out, in]
  std::vector<Shard> shards;  ///< empty: every rank of the grid's tensor axis holds all of it
  Init init;
  bool decay = false;  ///< weight decay: matrices, but not positions
  bool tied = false;   ///< a second use of the parameter of this name that another module declares: one
                       ///< weight, two gradients
};

/// A parameter on one rank.
struct LocalParam {
  ParamSpec spec;
  Box box;         ///< what of the logical tensor lies here; its first elements in memory, row-major
  Shape memory;    ///< shape in memory: the box, with rows padded so that all ranks of the axis are alike
  int copy = 0;    ///< which of the copies of this part over the tensor axis; 0 is the one that counts
  int copies = 1;  ///< how many there are
};

/// What `rank` holds of a parameter. A dimension of n elements in p parts is cut in blocks of ceil(n / p);
/// the last ones may be short or empty.
LocalParam localise(const ParamSpec& spec, const Grid& grid, int rank);

}  // namespace triax
