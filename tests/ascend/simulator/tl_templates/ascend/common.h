#pragma once

#include "ascendc.hpp"
#include "templates.hpp"
