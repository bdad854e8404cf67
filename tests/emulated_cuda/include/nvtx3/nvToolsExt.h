#pragma once

// NVTX's two calls that Triax uses; see ../../captures.cpp for what a test learns of them.
int nvtxRangePushA(const char* message);
int nvtxRangePop();
