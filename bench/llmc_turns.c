// Training steps of llm.c's CPU trainer: its counterpart of `triax bench step JOB.yaml --turns`, which
// bench/compare.py compiles against the user's checkout of llm.c and runs. As llm.c's own test does, it takes
// the trainer without its main(), which has batch, sequence and files written into it.
//
//     llmc_turns WEIGHTS TOKENS BATCH SEQUENCE LR BETA1 BETA2 EPS
//
// WEIGHTS is a checkpoint of llm.c's (bench/llmc_trainer.py), TOKENS int32 [BATCH, SEQUENCE + 1]. Reads a
// number of steps from each line of the standard input and answers with a line {"seconds": [..], "losses":
// [..]}.
#define TESTING
#include "train_gpt2.c"

enum { most_steps = 1000 };

// Inputs and targets [batch, sequence] out of the rows of `path`. The caller owns both.
static void read_rows(const char* path, int batch, int sequence, int** inputs, int** targets) {
  const size_t row = (size_t)sequence + 1;
  int* tokens = mallocCheck(batch * row * sizeof(int));
  FILE* file = fopenCheck(path, "rb");
  freadCheck(tokens, sizeof(int), batch * row, file);
  fcloseCheck(file);
  *inputs = mallocCheck((size_t)batch * sequence * sizeof(int));
  *targets = mallocCheck((size_t)batch * sequence * sizeof(int));
  for (int b = 0; b < batch; b++) {
    memcpy(*inputs + (size_t)b * sequence, tokens + b * row, sequence * sizeof(int));
    memcpy(*targets + (size_t)b * sequence, tokens + b * row + 1, sequence * sizeof(int));
  }
  free(tokens);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void print_list(const char* name, const double* values, int count, const char* end) {
  printf("\"%s\": [", name);
  for (int i = 0; i < count; i++) printf("%s%.9g", i ? ", " : "", values[i]);
  printf("]%s", end);
}

int main(int count, char** words) {
  if (count != 9) {
    fprintf(stderr, "usage: llmc_turns WEIGHTS TOKENS BATCH SEQUENCE LR BETA1 BETA2 EPS\n");
    return 2;
  }
  const int batch = atoi(words[3]), sequence = atoi(words[4]);
  const float lr = atof(words[5]), beta1 = atof(words[6]), beta2 = atof(words[7]), eps = atof(words[8]);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, words[1]);
  int *inputs, *targets;
  read_rows(words[2], batch, sequence, &inputs, &targets);
  int threads = 1;
#ifdef OMP
  threads = omp_get_max_threads();
#endif
  printf("{\"ready\": true, \"threads\": %d}\n", threads);
  fflush(stdout);
  static double seconds[most_steps], losses[most_steps];
  int done = 0;
  for (int steps; scanf("%d", &steps) == 1 && steps > 0 && steps <= most_steps;) {
    for (int i = 0; i < steps; i++) {
      const double start = now();
      gpt2_forward(&model, inputs, targets, batch, sequence);
      gpt2_zero_grad(&model);
      gpt2_backward(&model);
      // llm.c decays every parameter alike, Triax matrices alone: so none decays.
      gpt2_update(&model, lr, beta1, beta2, eps, 0.0f, ++done);
      seconds[i] = now() - start;
      losses[i] = model.mean_loss;
    }
    printf("{");
    print_list("seconds", seconds, steps, ", ");
    print_list("losses", losses, steps, "}\n");
    fflush(stdout);
  }
  return 0;
}
