#pragma once

#include <memory>
#include <vector>

#include "model/config.h"
#include "parallel/module.h"

namespace triax {

/// First layer of each of `parts` contiguous parts of the model, plus the end: parts + 1 ascending numbers,
/// every part at least one layer. The largest part's work is as small as possible, where the last part also
/// carries the head (a matrix [V, H] against the layers' own matrices); among equals the layers are spread
/// evenly. Requires parts <= num_hidden_layers.
std::vector<int> split_layers(const ModelConfig& model, int parts);

/// What a part of the model has to multiply for a token: matrix elements of its layers and of the head, which
/// only the last part has.
struct PartWork {
  double layers = 0, head = 0;
};
/// The work of each part of split_layers().
std::vector<PartWork> part_work(const ModelConfig& model, int parts);

/// The ordered modules of part `part` of `parts`: the first begins with the embedding, the last ends with the
/// head.
std::vector<std::unique_ptr<Module>> make_part(const ModelConfig& model, int part, int parts, int tensor);

/// All logical parameters of a model, in order, a tied weight once.
std::vector<ParamSpec> logical_parameters(const ModelConfig& model);
/// Their number of elements.
int64_t parameter_count(const ModelConfig& model);
/// Model FLOPs of one token, forward and backward: 6 N + 12 L H S, N counting tied embeddings once and
/// positions not (Narayanan et al. 2021 with full attention).
double flops_per_token(const ModelConfig& model, int64_t sequence_length);
/// What the model needs of a mesh.
MeshNeeds mesh_needs(const ModelConfig& model, int tensor);

}  // namespace triax
