#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

namespace triax {

/// `triax checkpoint diff A B`: per tensor whether the two are equal to the bit, else how many elements
/// differ, the largest absolute difference, and norm(A - B) / norm(A); whatever grids wrote them. Equal
/// hashes are taken for equal bits; of the others every element is read and checked. Returns 0 when all is
/// equal, else 1. The paths are checkpoints, or runs, whose newest complete one is meant.
int run_checkpoint_diff(const std::filesystem::path& a, const std::filesystem::path& b, bool as_json,
                        std::ostream& out);

/// `triax checkpoint inspect --tensor NAME`: shape, hash, smallest and largest element, mean, standard
/// deviation, norm, number of zeros and of elements that are not finite, of a tensor
/// ("model/final_norm.weight") or of all that a parameter has ("final_norm.weight": weight and moments).
/// Returns the exit status.
int run_checkpoint_statistics(const std::filesystem::path& path, const std::string& name, bool as_json,
                              std::ostream& out);

}  // namespace triax
