#include "comm/nccl/connect.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

#ifdef TRIAX_HAVE_NCCL
#include "comm/nccl/communicator.h"
#include "comm/nccl/library.h"
#endif
#include "core/error.h"

namespace triax {

namespace {

#ifndef TRIAX_HAVE_NCCL
int usable_nccl(std::string* why) {
  *why = "triax_cuda.so was built without it (CMake: -DTRIAX_NCCL=ON where nccl.h is found)";
  return 0;
}
std::string nccl_version_text(int) {
  return "";
}
#else
int usable_nccl(std::string* why) {
  const NcclLibrary* nccl = nccl_library(why);
  return nccl ? nccl->version : 0;
}
#endif

/// What a rank tells the others about its GPU.
struct Card {
  unsigned char uuid[16];
  uint64_t boot;  // of the host that it is in
  int32_t domain, bus, device;
  int32_t nccl;  // version; 0: none can be used
};

uint64_t boot_of_this_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return std::hash<std::string>{}(id);
}

Card card_of(const CudaDevice& device, int nccl) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device.ordinal()), "cudaGetDeviceProperties");
  Card card{};
  static_assert(sizeof card.uuid == sizeof properties.uuid.bytes);
  std::memcpy(card.uuid, properties.uuid.bytes, sizeof card.uuid);
  card.boot = boot_of_this_host();
  card.domain = properties.pciDomainID;
  card.bus = properties.pciBusID;
  card.device = properties.pciDeviceID;
  card.nccl = nccl;
  return card;
}

// Also parts of one GPU (MIG), which have names of their own: NCCL refuses two of a place on the bus.
bool same_gpu(const Card& a, const Card& b) {
  return std::memcmp(a.uuid, b.uuid, sizeof a.uuid) == 0 ||
         (a.boot == b.boot && a.domain == b.domain && a.bus == b.bus && a.device == b.device);
}

// "ranks 0 and 3 share a GPU"; empty where each has its own.
std::string shared_gpu(const std::vector<Card>& cards, const std::vector<int>& members) {
  for (size_t b = 1; b < cards.size(); ++b)
    for (size_t a = 0; a < b; ++a)
      if (same_gpu(cards[a], cards[b]))
        return fmt::format("ranks {} and {} share a GPU", members[a], members[b]);
  return "";
}

void check_nccl(const std::vector<Card>& cards, const Communicator& group, const std::string& why) {
  constexpr const char* others = "or set parallel.transport to host, which is slower";
  for (size_t r = 0; r < cards.size(); ++r) {
    const int rank = group.members()[r];
    if (cards[r].nccl == 0)
      fail_usage(
          "training.device: cuda: each rank of group '{}' has a GPU of its own, and NCCL is to send between "
          "them, but rank {} can't use NCCL{}{}. Install NCCL 2.18 or newer (libnccl.so.2) on every host, "
          "name "
          "its file in the environment's TRIAX_NCCL_LIBRARY, {}",
          group.name(), rank, why.empty() ? "" : ": ", why, others);
    if (cards[r].nccl != cards[0].nccl)
      fail_usage(
          "training.device: cuda: the ranks of group '{}' find different versions of NCCL: rank {} has {}, "
          "rank {} has {}. Let TRIAX_NCCL_LIBRARY name the same one on every host, {}",
          group.name(), group.members()[0], nccl_version_text(cards[0].nccl), rank,
          nccl_version_text(cards[r].nccl), others);
  }
}

}  // namespace

std::unique_ptr<Communicator> connect_nccl(std::unique_ptr<Communicator>& group, CudaDevice& device,
                                           const DeviceMessages& messages, AddPieces add, std::string& why) {
  std::string missing;
  Card mine = card_of(device, usable_nccl(&missing));
  std::vector<Card> cards(static_cast<size_t>(group->size()));
  const auto bytes = [](Card* data, size_t n) {
    return Tensor(data, DType::u8, {static_cast<int64_t>(n * sizeof(Card))});
  };
  group->all_gather(bytes(&mine, 1), bytes(cards.data(), cards.size())).wait();
  why = shared_gpu(cards, group->members());
  if (!why.empty()) return nullptr;
  check_nccl(cards, *group, missing);
#ifdef TRIAX_HAVE_NCCL
  return make_nccl_communicator(std::move(group), device, messages, add);
#else
  (void)messages, (void)add;
  return nullptr;  // not reached: without NCCL check_nccl() has thrown
#endif
}

}  // namespace triax
