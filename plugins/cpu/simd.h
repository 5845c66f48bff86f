// The vector type and its elementary functions, in one include.
#pragma once
#include "cpu/vector_math.h"
#include "cpu/vf.h"
