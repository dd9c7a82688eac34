#pragma once

/// Training: a program, a loss, an optimizer and data give a trained program.
#include "lathe/train/data.h"
#include "lathe/train/history.h"
#include "lathe/train/memory_budget.h"
#include "lathe/train/trainer.h"
#include "lathe/train/training_program.h"
