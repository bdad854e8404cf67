#include "launch/cli.h"
#include "program/bench.h"

int main(int argc, char** argv) {
  return triax::run_command_line(argc, argv, triax::add_bench);
}
