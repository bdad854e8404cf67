#include "engine/new_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include "checkpoint/file_io.h"
#include "core/error.h"

namespace triax {

namespace fs = std::filesystem;

NewFolder::NewFolder(const fs::path& place, const std::string& mark, bool force)
    : place_(fs::absolute(place / "").lexically_normal().parent_path()) {
  std::error_code error;
  if (fs::exists(place_, error) && !(fs::is_directory(place_, error) && fs::is_empty(place_, error))) {
    if (!force)
      fail_usage("{} is there already; name another folder, or replace it with --force", place_.string());
    if (!fs::exists(place_ / mark, error))
      fail_usage("{} holds no {}: --force replaces only what such a command wrote; name another folder",
                 place_.string(), mark);
  }
  const fs::path parent = place_.parent_path();
  fs::create_directories(parent, error);
  if (error) fail("can't make the folder {}: {}", parent.string(), error.message());
  temporary_ = parent / fmt::format(".{}.tmp-{}", place_.filename().string(), ::getpid());
  fs::remove_all(temporary_, error);
  fs::create_directory(temporary_, error);
  if (error) fail("can't make the folder {}: {}", temporary_.string(), error.message());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  sync_folder(temporary_);
  std::error_code error;
  fs::path old;
  if (fs::exists(place_, error)) {  // a rename replaces an empty folder alone
    old = place_.parent_path() / fmt::format(".{}.old-{}", place_.filename().string(), ::getpid());
    rename_path(place_, old);
  }
  rename_path(temporary_, place_);
  temporary_.clear();
  sync_folder(place_.parent_path());
  if (!old.empty()) fs::remove_all(old, error);
}

}  // namespace triax
