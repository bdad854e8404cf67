# `make install PREFIX=...`: the program with what it opens at run time, what editors and shells read, and the rooms as
# libraries for other people's programs (examples/extend).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Runtime: PREFIX/bin/triax looks for its plugins in PREFIX/lib/triax.
install(TARGETS triax RUNTIME DESTINATION bin COMPONENT runtime)
foreach(plugin triax_mpi triax_cuda)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION lib/triax COMPONENT runtime)
  endif()
endforeach()
# Written by the program itself, so that they are those of this very program.
install(CODE [[
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  function(triax_prints arguments file)
    get_filename_component(folder "${root}/${file}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    separate_arguments(arguments)
    execute_process(COMMAND "${root}/bin/triax" ${arguments} OUTPUT_FILE "${root}/${file}" COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS "Installing: ${root}/${file}")
  endfunction()
  triax_prints("man" share/man/man1/triax.1)
  triax_prints("schema" share/triax/job.schema.json)
  triax_prints("completion bash" share/bash-completion/completions/triax)
  triax_prints("completion zsh" share/zsh/vendor-completions/_triax)
  triax_prints("completion fish" share/fish/vendor_completions.d/triax.fish)
]] COMPONENT runtime)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(PROGRAMS scripts/demo DESTINATION share/triax COMPONENT runtime)

# Development: Triax::triax_core ... Triax::triax_engine. What they need is found by the same lines as here.
set(ROOMS_TO_INSTALL core kernels comm data parallel model optim pipeline checkpoint engine)
foreach(room ${ROOMS_TO_INSTALL})
  install(TARGETS triax_${room} EXPORT triaxTargets ARCHIVE DESTINATION lib COMPONENT development)
  install(DIRECTORY ${room} DESTINATION include/triax COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN cuda EXCLUDE PATTERN mpi EXCLUDE)
endforeach()
set(package lib/cmake/triax)
install(EXPORT triaxTargets NAMESPACE Triax:: DESTINATION ${package} COMPONENT development)
configure_package_config_file(cmake/triaxConfig.cmake.in ${CMAKE_BINARY_DIR}/triaxConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/triaxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/triaxConfig.cmake ${CMAKE_BINARY_DIR}/triaxConfigVersion.cmake
              cmake/Dependencies.cmake
        DESTINATION ${package} COMPONENT development)
