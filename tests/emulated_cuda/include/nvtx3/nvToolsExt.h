#pragma once

// NVTX's two calls that Triax uses; see ../../stream.h for what a test learns of them.
int nvtxRangePushA(const char* message);
int nvtxRangePop();
