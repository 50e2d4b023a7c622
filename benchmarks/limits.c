// What the processor can do at most: multiply-adds of registers, and memory that is read or streamed.
// usage: limits THREADS; prints GFLOP/s, GB/s read, GB/s of a[i] = b[i] + 3 * c[i].
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

// As many sums as cover the latency of an addition, in as many registers as there are.
#if defined(__AVX512F__)
#define BYTES 64
#define SUMS 20
#elif defined(__AVX2__)
#define BYTES 32
#define SUMS 12
#else
#define BYTES 16
#define SUMS 12
#endif
#define LANES (BYTES / 4)
typedef float lanes __attribute__((vector_size(BYTES)));

#if defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define STREAM(value, target) __builtin_nontemporal_store(value, target)
#endif
#endif
#ifndef STREAM
#define STREAM(value, target) (*(target) = (value))
#endif

// By default clang splits vectors of 64 bytes in two for some processors, which halves the limit.
#if defined(__clang__) && defined(__x86_64__)
#define WHOLE __attribute__((min_vector_width(BYTES * 8)))
#else
#define WHOLE
#endif

static const size_t SIZE = (size_t)1 << 25;  // floats an array: far more than caches hold
static const long STEPS = 400000;  // a millisecond: short enough to run undisturbed now and then
static const int ROUNDS[] = {100, 15, 15};
static float *first, *second, *third;
static int threads;
static pthread_barrier_t barrier;
static double started[64], ended[64];
static volatile float sink;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

WHOLE static void multiply_add(void) {
    lanes sums[SUMS], factor, term;
    for (int lane = 0; lane < LANES; lane++) factor[lane] = 0.999f, term[lane] = 1e-3f;
    for (int sum = 0; sum < SUMS; sum++) sums[sum] = term * (float)sum;
    for (long step = 0; step < STEPS; step++)
#pragma GCC unroll 32
        for (int sum = 0; sum < SUMS; sum++) sums[sum] = sums[sum] * factor + term;
    for (int sum = 1; sum < SUMS; sum++) sums[0] += sums[sum];
    sink = sums[0][0];
}

WHOLE static void read_all(size_t begin, size_t end) {
    lanes sums[8] = {0};
    for (size_t at = begin; at < end; at += 8 * LANES)
#pragma GCC unroll 8
        for (int sum = 0; sum < 8; sum++) sums[sum] += *(lanes*)(first + at + sum * LANES);
    for (int sum = 1; sum < 8; sum++) sums[0] += sums[sum];
    sink = sums[0][0];
}

WHOLE static void triad(size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += LANES) {
        lanes value = *(lanes*)(second + at) + 3 * *(lanes*)(third + at);
        STREAM(value, (lanes*)(first + at));
    }
}

static void* work(void* argument) {
    long thread = (long)argument;
    size_t begin = SIZE / threads * thread, end = SIZE / threads * (thread + 1);
    double best[3] = {1e9, 1e9, 1e9};
    for (int kind = 0; kind < 3; kind++)
        for (int round = 0; round < ROUNDS[kind]; round++) {
            pthread_barrier_wait(&barrier);
            started[thread] = now();
            if (kind == 0) multiply_add();
            if (kind == 1) read_all(begin, end);
            if (kind == 2) triad(begin, end);
            ended[thread] = now();
            pthread_barrier_wait(&barrier);
            double from = started[0], to = ended[0];
            for (int other = 1; other < threads; other++) {
                if (started[other] < from) from = started[other];
                if (ended[other] > to) to = ended[other];
            }
            if (to - from < best[kind]) best[kind] = to - from;
            pthread_barrier_wait(&barrier);
        }
    if (thread == 0)
        printf("%.1f %.2f %.2f\n", 2e-9 * threads * LANES * SUMS * STEPS / best[0],
               4e-9 * SIZE / best[1], 12e-9 * SIZE / best[2]);
    return 0;
}

int main(int count, char** arguments) {
    threads = count > 1 ? atoi(arguments[1]) : 1;
    if (threads < 1 || threads > 64) return 1;
    float** arrays[] = {&first, &second, &third};
    for (int array = 0; array < 3; array++) {
        float* memory = aligned_alloc((size_t)1 << 21, SIZE * sizeof(float));
        if (!memory) return 1;
#ifdef MADV_HUGEPAGE
        madvise(memory, SIZE * sizeof(float), MADV_HUGEPAGE);
#endif
        for (size_t at = 0; at < SIZE; at++) memory[at] = at & 255;
        *arrays[array] = memory;
    }
    pthread_t handles[64];
    pthread_barrier_init(&barrier, 0, threads);
    for (long thread = 0; thread < threads; thread++)
        pthread_create(&handles[thread], 0, work, (void*)thread);
    for (int thread = 0; thread < threads; thread++) pthread_join(handles[thread], 0);
    return 0;
}
