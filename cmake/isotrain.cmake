# What every target of ours is compiled with. The floating-point flags are part of the numerics contract: no
# contraction that the source does not spell out, no reassociation.
# (GCC 12 sees overlapping copies in every concatenation of strings, its bug 105651: no -Wrestrict.)
add_library(isotrain_flags INTERFACE)
target_include_directories(isotrain_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(isotrain_flags INTERFACE -Wall -Wextra -Wpedantic -Werror -Wno-restrict -ffp-contract=off -fno-fast-math)
# One binary holds the scalar, AVX2 and AVX-512 forms (on Arm: scalar and NEON), so that tests can force each.
target_compile_definitions(isotrain_flags INTERFACE
  HWY_COMPILE_ALL_ATTAINABLE
  HWY_BROKEN_EMU128=1  # the scalar form is HWY_SCALAR with every compiler: kernels/cpu/simd-inl.h gives it a fused multiply-add
  "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
if(ISOTRAIN_SANITIZE)
  # GCC 12 takes what the sanitizers add to std::regex for uninitialised memory: no -Wmaybe-uninitialized here.
  target_compile_options(isotrain_flags INTERFACE -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                                  -fno-omit-frame-pointer -g1 -Wno-maybe-uninitialized)
  target_link_options(isotrain_flags INTERFACE -fsanitize=address,undefined)
endif()

# isotrain_layer(NAME FOLDER LIBRARIES...): one static library from all sources of a folder.
function(isotrain_layer name folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "app/main\\.cpp$")
  if(NOT sources)
    add_library(isotrain_${name} INTERFACE)
    target_link_libraries(isotrain_${name} INTERFACE isotrain_flags ${ARGN})
  else()
    add_library(isotrain_${name} STATIC ${sources})
    target_link_libraries(isotrain_${name} PUBLIC isotrain_flags ${ARGN})
  endif()
  add_library(isotrain::${name} ALIAS isotrain_${name})
endfunction()

# add_unit_test(FILE RANKS 1 2 4 TIMEOUT 60 LIBRARIES isotrain::kernels ARGS ...): a GoogleTest file, run once for each
# number of ranks under mpirun (0: as a plain process, for tests that start mpirun themselves). Every test has a time-out, a label and a processor count.
function(add_unit_test file)
  cmake_parse_arguments(T "" "TIMEOUT" "RANKS;LIBRARIES;LABELS;DEFINITIONS;DEPENDS" ${ARGN})
  if(NOT DEFINED T_RANKS)
    set(T_RANKS 1)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  get_filename_component(base ${file} NAME_WE)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "." folder "${folder}")
  set(name ${folder}.${base})
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE isotrain_test_support GTest::gtest ${T_LIBRARIES})
  if(T_DEFINITIONS)
    target_compile_definitions(${name} PRIVATE ${T_DEFINITIONS})
  endif()
  if(T_DEPENDS)
    add_dependencies(${name} ${T_DEPENDS})
  endif()
  foreach(ranks IN LISTS T_RANKS)
    if(ranks EQUAL 0)
      add_test(NAME ${name}.np0 COMMAND ${name})
      set(processors 2)
    else()
      add_test(NAME ${name}.np${ranks} COMMAND ${MPIEXEC_EXECUTABLE} -np ${ranks} $<TARGET_FILE:${name}>)
      set(processors ${ranks})
    endif()
    set_tests_properties(${name}.np${ranks} PROPERTIES
      TIMEOUT ${T_TIMEOUT} PROCESSORS ${processors} LABELS "cpu;${T_LABELS}"
      ENVIRONMENT "${ISOTRAIN_MPI_ENVIRONMENT}")
  endforeach()
endfunction()

# Rank counts above the cores of the machine, on the loopback interface only.
set(ISOTRAIN_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
  OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1)
if(ISOTRAIN_SANITIZE)
  # Open MPI keeps memory to its end in every process: leaks are not looked for.
  list(APPEND ISOTRAIN_MPI_ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()
