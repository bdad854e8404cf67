// Compiled by no test; it stands for a file that is linked with one room (CMakeLists.txt here).
