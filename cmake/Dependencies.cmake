# Distribution packages, found here and nowhere else; nothing is downloaded. `make build` installs what is missing.
# Targets made here are IMPORTED: this file is installed too, and finds the same for programs that use our libraries.
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# Processors and memory domains of this host, for `triax launch`.
find_path(HWLOC_INCLUDE_DIR hwloc.h REQUIRED)
find_library(HWLOC_LIBRARY hwloc REQUIRED)
add_library(triax_hwloc INTERFACE)
target_include_directories(triax_hwloc SYSTEM INTERFACE ${HWLOC_INCLUDE_DIR})
target_link_libraries(triax_hwloc INTERFACE ${HWLOC_LIBRARY})

set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
add_library(triax_hdf5 INTERFACE IMPORTED)
target_include_directories(triax_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(triax_hdf5 INTERFACE ${HDF5_C_LIBRARIES})

# Tokenizers: SentencePiece, and utf8proc's tables of characters.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)
find_library(UTF8PROC_LIBRARY utf8proc)
foreach(found SENTENCEPIECE_INCLUDE_DIR SENTENCEPIECE_LIBRARY SENTENCEPIECE_TRAIN_LIBRARY UTF8PROC_INCLUDE_DIR
              UTF8PROC_LIBRARY)
  if(NOT ${found})
    message(FATAL_ERROR "${found} was not found (Debian: libsentencepiece-dev, libutf8proc-dev)")
  endif()
endforeach()
add_library(triax_text INTERFACE IMPORTED)
target_include_directories(triax_text SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE_DIR} ${UTF8PROC_INCLUDE_DIR})
target_link_libraries(triax_text INTERFACE ${SENTENCEPIECE_TRAIN_LIBRARY} ${SENTENCEPIECE_LIBRARY} ${UTF8PROC_LIBRARY})
