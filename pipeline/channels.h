#pragma once

#include <vector>

#include "pipeline/action.h"

namespace triax {

/// The messages of one pass (forward or backward) from one stage to another, in the order in which they are
/// sent. Between two stages the two passes have channels of their own.
struct Channel {
  int from, to;
  bool forward;
  std::vector<int> sends;     ///< indices into the sender's actions
  std::vector<int> receives;  ///< indices into the receiver's actions
};

/// All channels of a schedule. The n-th send of a channel is taken by its n-th receive.
class Channels {
 public:
  explicit Channels(const Schedule& schedule);
  const std::vector<Channel>& all() const { return channels_; }
  /// Index of the channel on which `stage` does a message of this kind; -1 for what is no message and where a
  /// schedule of one stage has no channel.
  int of(int stage, ActionKind kind) const;

 private:
  int stages_;
  std::vector<Channel> channels_;  // forward of stage 0, backward of stage 0, forward of stage 1, ...
};

bool is_send(ActionKind kind);
bool is_receive(ActionKind kind);

/// Is the message that `send` sends on this channel the one that `receive` waits for? The last stage's output
/// is the input of stage 0's next chunk.
bool matches(const ScheduleShape& shape, const Channel& channel, const Action& send, const Action& receive);

}  // namespace triax
