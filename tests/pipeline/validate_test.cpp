#include "pipeline/validate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "pipeline/schedule.h"

namespace triax {
namespace {

using enum ActionKind;
using Actions = std::vector<Action>;

std::string refusal(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

void expect_refused(const Schedule& schedule, const std::string& place, const std::string& reason) {
  const std::string message = refusal(schedule);
  EXPECT_NE(message.find(place), std::string::npos) << message;
  EXPECT_NE(message.find(reason), std::string::npos) << message;
}

int find(const Actions& actions, const Action& action) {
  return static_cast<int>(std::find(actions.begin(), actions.end(), action) - actions.begin());
}

void erase(Actions& actions, const Action& action) {
  actions.erase(actions.begin() + find(actions, action));
}

void swap(Actions& actions, const Action& a, const Action& b) {
  std::swap(actions[find(actions, a)], actions[find(actions, b)]);
}

Schedule three_stages() {
  return make_schedule({"1f1b", 3, 1, 4});
}

TEST(Validate, MissingForward) {
  Schedule s = three_stages();
  erase(s.stages[0], {forward, 3, 0});
  expect_refused(s, "stage 0, action 8 (send_forward of micro-batch 3)", "its forward has not run");
}

TEST(Validate, MissingBackwardAtTheEnd) {
  Schedule s = make_schedule({"gpipe", 1, 1, 3});
  s.stages[0].pop_back();
  expect_refused(s, "stage 0", "backward of micro-batch 2 is missing");
}

TEST(Validate, MissingSendAndMissingReceive) {
  Schedule s = three_stages();
  erase(s.stages[1], {send_forward, 3, 0});
  expect_refused(s, "stage 1", "send_forward of micro-batch 3 is missing");
  s = three_stages();
  erase(s.stages[1], {send_backward, 3, 0});
  expect_refused(s, "stage 1", "send_backward of micro-batch 3 is missing");
  s = three_stages();
  erase(s.stages[2], {recv_forward, 2, 0});
  expect_refused(s, "stage 2", "its input has not been received");
  s = three_stages();
  erase(s.stages[1], {recv_backward, 0, 0});
  expect_refused(s, "stage 1", "its gradient has not been received");
}

TEST(Validate, DoneTwice) {
  for (ActionKind kind : {recv_forward, forward, send_forward, recv_backward, backward, send_backward}) {
    Schedule s = three_stages();
    Actions& a = s.stages[1];
    const int at = find(a, {kind, 1, 0});
    a.insert(a.begin() + at + 1, {kind, 1, 0});
    expect_refused(s, "stage 1, action " + std::to_string(at + 1),
                   "it was already done by action " + std::to_string(at));
  }
}

TEST(Validate, BackwardBeforeForward) {
  Schedule s = make_schedule({"1f1b", 1, 1, 2});
  swap(s.stages[0], {forward, 0, 0}, {backward, 0, 0});
  expect_refused(s, "stage 0, action 0 (backward of micro-batch 0)", "its forward has not run");
}

TEST(Validate, DescendingOrder) {
  Schedule s = make_schedule({"gpipe", 1, 1, 3});
  swap(s.stages[0], {forward, 0, 0}, {forward, 1, 0});
  expect_refused(s, "stage 0, action 1 (forward of micro-batch 0)", "order must ascend");
  s = make_schedule({"gpipe", 1, 1, 3});
  swap(s.stages[0], {backward, 1, 0}, {backward, 2, 0});
  expect_refused(s, "stage 0, action 5 (backward of micro-batch 1)", "order must ascend");
}

TEST(Validate, OutOfRange) {
  Schedule s = three_stages();
  s.stages[2].push_back({forward, 4, 0});
  expect_refused(s, "stage 2", "the micro-batches are 0 to 3");
  s = three_stages();
  s.stages[2][0].chunk = 1;
  expect_refused(s, "stage 2, action 0", "the chunks are 0 to 0");
  s = three_stages();
  s.stages.pop_back();
  expect_refused(s, "is for 3 stages", "lists 2");
  s.shape.micro_batches = 0;
  expect_refused(s, "0 micro-batches", "at least 1");
}

TEST(Validate, MessagesAtTheEndsOfThePipeline) {
  const auto with = [](int stage, ActionKind kind) {
    Schedule s = three_stages();
    s.stages[stage].push_back({kind, 0, 0});
    return s;
  };
  expect_refused(with(0, recv_forward), "stage 0", "gets no input from another stage");
  expect_refused(with(0, send_backward), "stage 0", "no stage waits for the gradient");
  expect_refused(with(2, send_forward), "stage 2", "no stage waits for the output");
  expect_refused(with(2, recv_backward), "stage 2", "gets no gradient from another stage");
}

TEST(Validate, HalvesOfTheBackward) {
  const Schedule whole = make_schedule({"1f1b", 1, 1, 2});
  Schedule s = whole;
  s.stages[0] = {{forward, 0, 0},         {backward_input, 0, 0}, {forward, 1, 0},
                 {backward_weight, 0, 0}, {backward_input, 1, 0}, {backward_weight, 1, 0}};
  EXPECT_NO_THROW(validate(s));
  EXPECT_EQ(in_flight(s), std::vector<int>{2}) << "the weight half frees the slot, not the input half";

  s.stages[0].pop_back();
  expect_refused(s, "stage 0", "backward_weight of micro-batch 1 is missing");
  s.stages[0].push_back({backward, 1, 0});
  expect_refused(s, "stage 0, action 5", "already been run by halves");
  s.stages[0] = {{forward, 0, 0}, {backward_weight, 0, 0}, {backward_input, 0, 0}};
  expect_refused(s, "stage 0, action 1", "its backward_input has not run");
  s.stages[0] = {{forward, 0, 0}, {backward, 0, 0}, {backward_input, 0, 0}};
  expect_refused(s, "stage 0, action 2", "its backward has already run");
  s.stages[0] = {{forward, 0, 0},        {forward, 1, 0},         {backward_input, 0, 0},
                 {backward_input, 1, 0}, {backward_weight, 1, 0}, {backward_weight, 0, 0}};
  expect_refused(s, "stage 0, action 5", "order must ascend");
}

TEST(Validate, ChunksOfOneStageHandOverAtOnce) {
  Schedule s = make_schedule({"interleaved", 1, 2, 2});
  EXPECT_NO_THROW(validate(s));
  swap(s.stages[0], {forward, 0, 1}, {forward, 1, 0});
  expect_refused(s, "stage 0, action 1 (forward of micro-batch 1, chunk 0)",
                 "the result of forward of micro-batch 0, chunk 0 has not been sent or taken over");
  s = make_schedule({"interleaved", 1, 2, 2});
  swap(s.stages[0], {forward, 0, 1}, {forward, 0, 0});
  expect_refused(s, "stage 0, action 0", "the result of the chunk beside it is not there");
  s.stages[0] = {{forward, 0, 0},  {forward, 0, 1},  {forward, 1, 0},  {forward, 1, 1},
                 {backward, 0, 1}, {backward, 1, 1}, {backward, 0, 0}, {backward, 1, 0}};
  expect_refused(s, "stage 0, action 5", "the result of backward of micro-batch 0, chunk 1 has not been");
}

TEST(Validate, EvaluationsGoForwardAlone) {
  Schedule s = make_evaluation({"1f1b", 2, 1, 2});
  s.stages[1].push_back({backward, 0, 0});
  expect_refused(s, "stage 1, action 4", "an evaluation has no backward");
  s = make_evaluation({"1f1b", 2, 1, 2});
  s.stages[0].push_back({recv_backward, 0, 0});
  expect_refused(s, "stage 0, action 4", "an evaluation has no backward");
  s = make_evaluation({"1f1b", 2, 1, 2});
  s.stages[0].pop_back();
  expect_refused(s, "stage 0", "send_forward of micro-batch 1 is missing");
}

TEST(Validate, OneBufferPerDirection) {
  Schedule s = make_schedule({"gpipe", 2, 1, 2});
  swap(s.stages[0], {send_forward, 0, 0}, {forward, 1, 0});
  expect_refused(s, "stage 0, action 1 (forward of micro-batch 1)",
                 "the result of forward of micro-batch 0 has not been sent");
  s = make_schedule({"gpipe", 2, 1, 2});
  swap(s.stages[0], {backward, 0, 0}, {recv_backward, 1, 0});
  expect_refused(s, "stage 0, action 5 (recv_backward of micro-batch 1)", "there is one buffer");
}

TEST(Validate, SendsAndReceivesInAnotherOrder) {
  Schedule s = make_schedule({"gpipe", 2, 1, 2});
  // Both inputs are received before their forwards, the later one first: each rule of the stage is kept.
  s.stages[1] = {{recv_forward, 1, 0}, {recv_forward, 0, 0},  {forward, 0, 0},  {forward, 1, 0},
                 {backward, 0, 0},     {send_backward, 0, 0}, {backward, 1, 0}, {send_backward, 1, 0}};
  expect_refused(s, "stage 1, action 0 (recv_forward of micro-batch 1)", "in the same order");
}

TEST(Validate, DeadlockIsExplained) {
  // The last stage wants all inputs before its first backward; the first stage wants a gradient before its
  // second forward.
  Schedule s = make_schedule({"gpipe", 2, 1, 2});
  s.stages[0] = {{forward, 0, 0}, {send_forward, 0, 0}, {recv_backward, 0, 0}, {backward, 0, 0},
                 {forward, 1, 0}, {send_forward, 1, 0}, {recv_backward, 1, 0}, {backward, 1, 0}};
  expect_refused(s, "stage 0, action 2 (recv_backward of micro-batch 0) waits for stage 1 to send it",
                 "stage 1, action 2 (recv_forward of micro-batch 1) waits for stage 0 to send it");
}

TEST(Validate, DeadlockOfUnbufferedSends) {
  // Would run if messages were buffered: stage 0 makes all its outputs before it takes a gradient, stage 1
  // hands a gradient back after each forward.
  const auto one_by_one = [](int micro_batches) {
    Schedule s = make_schedule({"gpipe", 2, 1, micro_batches});
    s.stages[1] = {};
    for (int k = 0; k < micro_batches; ++k)
      for (ActionKind kind : {recv_forward, forward, backward, send_backward})
        s.stages[1].push_back({kind, k, 0});
    return s;
  };
  EXPECT_NO_THROW(validate(one_by_one(3))) << "the started send and the receive bridge two micro-batches";
  expect_refused(
      one_by_one(4), "stage 0, action 6: deadlock when no message is buffered",
      "stage 1, action 6 (backward of micro-batch 1) waits for stage 0 to receive the message before it");
}

}  // namespace
}  // namespace triax
