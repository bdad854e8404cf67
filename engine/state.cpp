#include "engine/state.h"

namespace triax {

namespace {

// A range of a parameter, as the boxes that are contiguous in it.
void append(std::vector<StatePiece>& out, StateKind kind, const ParamStore::Entry& entry,
            const ParamRange& range, float* data) {
  for (const Box& box :
       boxes_of_range(entry.box, range.first_in_box, range.first_in_box + range.end - range.begin)) {
    out.push_back({kind, entry.spec.name, entry.spec.global, box, data});
    data += box.numel();
  }
}

template <class Visit>
void for_each_counted(Trainer& trainer, const ZeroPartition& partition, const Visit& visit) {
  for (const auto& piece : partition.pieces()) {
    const auto& entry = trainer.params().entries()[static_cast<size_t>(piece.entry)];
    if (entry.counted) visit(entry, piece);
  }
}

}  // namespace

namespace {

// In the device's memory.
std::vector<StatePiece> own_state(Trainer& trainer) {
  std::vector<StatePiece> out;
  Optimizer& optimizer = trainer.optimizer();
  for_each_counted(trainer, optimizer.partition(), [&](const auto& entry, const auto& piece) {
    append(out, StateKind::weight, entry, piece, optimizer.master_at(piece.begin));
    append(out, StateKind::exp_avg, entry, piece, optimizer.exp_avg_at(piece.begin));
    append(out, StateKind::exp_avg_sq, entry, piece, optimizer.exp_avg_sq_at(piece.begin));
  });
  return out;
}

}  // namespace

std::vector<StatePiece> pieces_to_save(Trainer& trainer) {
  return trainer.device().kind() == DeviceKind::cpu ? own_state(trainer) : snapshot_to_save(trainer);
}

int64_t elements_to_save(Trainer& trainer) {
  return 3 * trainer.optimizer().partition().elements();  // weight and both moments
}

std::vector<StatePiece> snapshot_to_save(Trainer& trainer) {
  std::vector<StatePiece> pieces = own_state(trainer);
  const Tensor room = trainer.snapshot();
  int64_t at = 0;
  for (StatePiece& piece : pieces) {
    const int64_t n = piece.box.numel();
    check(at + n <= room.numel(), "the snapshot has room for {} elements, not for {}", room.numel(), at + n);
    trainer.device().read(room.f32() + at, piece.data, static_cast<size_t>(n) * sizeof(float));
    piece.data = room.f32() + at;
    at += n;
  }
  return pieces;
}

std::vector<StatePiece> pieces_to_load(Trainer& trainer, bool weights_only) {
  std::vector<StatePiece> out;
  Optimizer& optimizer = trainer.optimizer();
  trainer.forget_loading();
  const auto room = [&](const ParamRange& piece, float* place) {
    return trainer.room_to_load(place, piece.end - piece.begin);
  };
  if (!optimizer.has_masters())
    for (const auto& entry : trainer.params().entries())
      if (entry.primary < 0 && !empty(entry.box))
        out.push_back(
            {StateKind::weight, entry.spec.name, entry.spec.global, entry.box,
             trainer.room_to_load(trainer.params().weights().f32() + entry.offset, entry.box.numel())});
  for (const auto& piece : optimizer.updated().pieces()) {
    const auto& entry = trainer.params().entries()[static_cast<size_t>(piece.entry)];
    if (optimizer.has_masters())
      append(out, StateKind::weight, entry, piece, room(piece, optimizer.master_at(piece.begin)));
    if (weights_only) continue;
    append(out, StateKind::exp_avg, entry, piece, room(piece, optimizer.exp_avg_at(piece.begin)));
    append(out, StateKind::exp_avg_sq, entry, piece, room(piece, optimizer.exp_avg_sq_at(piece.begin)));
  }
  return out;
}

std::vector<StatePiece> gradient_pieces(Trainer& trainer) {
  std::vector<StatePiece> out;
  Device& device = trainer.device();
  const Tensor grads = trainer.params().grads();
  std::vector<float>& copy = trainer.host_copy();
  const bool on_host = device.kind() == DeviceKind::cpu;
  if (!on_host) copy.resize(static_cast<size_t>(trainer.optimizer().partition().elements()));
  int64_t at = 0;
  for_each_counted(trainer, trainer.optimizer().partition(), [&](const auto& entry, const auto& piece) {
    const int64_t n = piece.end - piece.begin;
    float* data = on_host ? grads.f32() + piece.begin : copy.data() + at;
    if (!on_host) device.read(data, grads.f32() + piece.begin, static_cast<size_t>(n) * sizeof(float));
    at += n;
    append(out, StateKind::weight, entry, piece, data);
  });
  return out;
}

}  // namespace triax
