#include "launch/commands.h"

int main(int argc, char** argv) {
  return triax::run_command_line(argc, argv);
}
