# Distribution packages, found here and nowhere else; nothing is downloaded. `make build` installs what is missing.
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
add_library(triax_hdf5 INTERFACE)
target_include_directories(triax_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(triax_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
