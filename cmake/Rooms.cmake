# triax_room(NAME [BELOW rooms...] [USES libraries...])
#
# One folder, one static library triax_NAME. Its public include directory holds a single link NAME -> the folder,
# so that `#include "other/file.h"` compiles only where `other` is among the rooms below: a forbidden include fails.
# Subfolders of a room that are plugins (kernels/cuda, comm/mpi, comm/nccl) are built by Plugins.cmake instead.
#
# Other people's headers that most files read are compiled once. `make lint` compiles every file without that, and so
# proves that each includes what it uses. (In the sanitizer trees, some files of a room are compiled as one instead.)
set(TRIAX_COMMON_HEADERS <algorithm> <chrono> <cmath> <cstring> <filesystem> <functional> <map> <memory> <mutex> <optional>
                         <string> <thread> <vector> <fmt/format.h> <nlohmann/json.hpp>)

function(triax_room NAME)
  cmake_parse_arguments(ROOM "" "" "BELOW;USES" ${ARGN})
  # Names relative to the room: a checkout may lie in a folder that is called cuda or mpi.
  file(GLOB_RECURSE SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/${NAME} ${CMAKE_SOURCE_DIR}/${NAME}/*.cpp)
  list(FILTER SOURCES EXCLUDE REGEX "^(cuda|mpi|nccl)/|^main\\.cpp$")
  list(TRANSFORM SOURCES PREPEND ${CMAKE_SOURCE_DIR}/${NAME}/)
  set(door ${CMAKE_BINARY_DIR}/house/${NAME})
  file(MAKE_DIRECTORY ${door})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${NAME} ${door}/${NAME} SYMBOLIC)
  if(SOURCES)
    add_library(triax_${NAME} STATIC ${SOURCES})
    set(scope PUBLIC)
  else()
    add_library(triax_${NAME} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(triax_${NAME} ${scope} $<BUILD_INTERFACE:${door}> $<INSTALL_INTERFACE:include/triax>)
  target_compile_features(triax_${NAME} ${scope} cxx_std_20)
  if(NAME STREQUAL "kernels") # whose files have instruction sets of their own, to the file's end
    set_target_properties(triax_kernels PROPERTIES UNITY_BUILD OFF)
  elseif(NAME STREQUAL "core")
    target_precompile_headers(triax_core PRIVATE ${TRIAX_COMMON_HEADERS})
  elseif(NAME STREQUAL "launch")
    target_precompile_headers(triax_launch PRIVATE <CLI/CLI.hpp> ${TRIAX_COMMON_HEADERS})
  elseif(SOURCES AND NOT NAME STREQUAL "program")
    target_precompile_headers(triax_${NAME} REUSE_FROM triax_core)
  endif()
  foreach(room ${ROOM_BELOW})
    target_link_libraries(triax_${NAME} ${scope} triax_${room})
  endforeach()
  target_link_libraries(triax_${NAME} ${scope} ${ROOM_USES})
endfunction()
