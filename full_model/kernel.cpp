// Loss and gradient of the papers' single-layer transformer on batches of binary sequences.
//
// The equations are those of transformer.py (one layer, one head, softmax attention, ReLU, binary
// logit, learned positions) and their chain rule. Sizes are compile-time constants: D, R (width),
// N (length), B (batch) and REAL. Positions are the fastest axis of every activation, in vectors
// of 64 bytes. One call does `members` models one after the other.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

constexpr bool SINGLE = sizeof(REAL) == 4;
template <bool> struct Integer { typedef int64_t type; };
template <> struct Integer<true> { typedef int32_t type; };
typedef Integer<SINGLE>::type INT;
typedef REAL V __attribute__((vector_size(64)));
typedef INT VI __attribute__((vector_size(64)));
constexpr int L = 64 / sizeof(REAL), S = (N + L - 1) / L;  // lanes, vectors along the positions
typedef V Row[S];

static inline V all(REAL x) { return V{} + x; }

static inline VI lanes()
{
    VI lane = {};
    for (int l = 0; l < L; l++)
        lane[l] = l;
    return lane;
}

static inline REAL sum(V v)
{
    const VI lane = lanes();
    for (int half = L / 2; half > 0; half /= 2)
        v += __builtin_shuffle(v, lane ^ half);
    return v[0];
}

static inline REAL largest(V v)
{
    const VI lane = lanes();
    for (int half = L / 2; half > 0; half /= 2) {
        V other = __builtin_shuffle(v, lane ^ half);
        v = v > other ? v : other;
    }
    return v[0];
}

// The sums of D vectors. Eight at a time fold into one whose lane l holds (part of) the l-th sum: a
// step by `half` keeps the lanes of `a` without that bit and those of `b` with it.
static inline V fold(V a, V b, int half)
{
    const VI lane = lanes(), second = (lane & half) != 0;
    const V kept = second ? b : a, moved = second ? a : b;
    return kept + __builtin_shuffle(moved, lane ^ half);
}

static inline void sums(const V *v, REAL *out)
{
    int c = 0;
    for (; c + 8 <= D; c += 8) {
        V pair[4], four[2];
        for (int i = 0; i < 4; i++)
            pair[i] = fold(v[c + 2 * i], v[c + 2 * i + 1], 1);
        for (int i = 0; i < 2; i++)
            four[i] = fold(pair[2 * i], pair[2 * i + 1], 2);
        V eight = fold(four[0], four[1], 4);
        if (L == 16)
            eight += __builtin_shuffle(eight, lanes() ^ 8);
        for (int i = 0; i < 8; i++)
            out[c + i] = eight[i];
    }
    for (; c < D; c++)
        out[c] = sum(v[c]);
}

// e^x for x <= 0: 2^k e^r with |r| <= log(2)/2, Taylor's series to rounding.
static inline V exponential(V x)
{
    constexpr REAL least = SINGLE ? -87 : -708, big = SINGLE ? 12582912.0 : 6755399441055744.0;
    constexpr REAL high = SINGLE ? 0.693145751953125 : 0.6931471803691238;
    constexpr REAL low = SINGLE ? 1.42860682030941723e-6 : 1.9082149292705877e-10;
    x = x < least ? all(least) : x;  // so that NaN stays NaN
    constexpr int terms = SINGLE ? 7 : 13;
    constexpr double inverse_factorial[] = {
        1, 1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880,
        1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800};
    V k = (x * (REAL)1.4426950408889634 + big) - big;
    V r = (x - k * high) - k * low, y = all((REAL)inverse_factorial[terms]);
    for (int i = terms - 1; i >= 0; i--)
        y = y * r + (REAL)inverse_factorial[i];
    VI two = (__builtin_convertvector(k, VI) + (SINGLE ? 127 : 1023)) << (SINGLE ? 23 : 52);
    return y * (V)two;
}

// log(1 + t) for 0 <= t <= 1, as 2 artanh of t/(2 + t) <= 1/3.
static inline V log_one_plus(V t)
{
    const V z = t / (t + 2), square = z * z;
    constexpr int terms = SINGLE ? 9 : 18;
    V y = {};
    for (int i = terms; i >= 0; i--)
        y = y * square + (REAL)(1.0 / (2 * i + 1));
    return 2 * z * y;
}

struct Model {  // scratch of one model
    Row x[D], q[D], k[D], v[D], a[D], y[D], h[R], share[N];
    Row dy[D], da[D], dq[D], dk[D], dv[D], gp[D];
    V up[R][D], read[R], query[D][D], key[D][D], value[D][D], out[D][D], e[D], u[D];
    Row bits, g, logit;
};

// out = M in, and out += Mᵀ in, for D x D matrices M.
__attribute__((noinline)) static void apply(const REAL *m, const Row *in, Row *out, REAL scale)
{
    for (int s = 0; s < S; s++)
        for (int c = 0; c < D; c++) {
            V total = {};
            for (int k = 0; k < D; k++)
                total += m[c * D + k] * in[k][s];
            out[c][s] = total * scale;
        }
}

__attribute__((noinline)) static void add_transposed(const REAL *m, const Row *in, Row *out)
{
    for (int s = 0; s < S; s++)
        for (int k = 0; k < D; k++) {
            V total = out[k][s];
            for (int c = 0; c < D; c++)
                total += m[c * D + k] * in[c][s];
            out[k][s] = total;
        }
}

__attribute__((noinline)) static void add_outer(const Row *left, const Row *right, V (*m)[D])
{
    for (int c = 0; c < D; c++)
        for (int k = 0; k < D; k++) {
            V total = m[c][k];
            for (int s = 0; s < S; s++)
                total += left[c][s] * right[k][s];
            m[c][k] = total;
        }
}

__attribute__((noinline)) static void attend(Model &w)
{
    const VI lane = lanes();
    for (int n = 0; n < N; n++) {
        const int last = n / L;
        V top = all(-INFINITY), total = {}, scores[S], mixed[D] = {};
        REAL q[D];
        for (int c = 0; c < D; c++)
            q[c] = ((REAL *)w.q[c])[n];
        for (int s = 0; s <= last; s++) {
            V score = {};
            for (int c = 0; c < D; c++)
                score += q[c] * w.k[c][s];
            if (s == last)
                score = lane + s * L <= n ? score : all(-INFINITY);
            top = score > top ? score : top;
            scores[s] = score;
        }
        const REAL peak = largest(top);
        for (int s = 0; s <= last; s++) {
            V share = exponential(scores[s] - peak);
            if (s == last)
                share = lane + s * L <= n ? share : V{};
            total += share;
            for (int c = 0; c < D; c++)
                mixed[c] += share * w.v[c][s];
            scores[s] = share;
        }
        const REAL scale = 1 / sum(total);
        for (int s = 0; s <= last; s++)
            w.share[n][s] = scores[s] * scale;
        REAL a[D];
        sums(mixed, a);
        for (int c = 0; c < D; c++)
            ((REAL *)w.a[c])[n] = a[c] * scale;
    }
}

__attribute__((noinline)) static void attend_back(Model &w)
{
    memset(w.dk, 0, sizeof w.dk);
    memset(w.dv, 0, sizeof w.dv);
    for (int n = 0; n < N; n++) {
        const int count = n / L + 1;
        REAL mean = 0, g[D], q[D];
        V back[D] = {};
        for (int c = 0; c < D; c++) {
            g[c] = ((REAL *)w.da[c])[n];
            q[c] = ((REAL *)w.q[c])[n];
            mean += g[c] * ((REAL *)w.a[c])[n];
        }
        for (int s = 0; s < count; s++) {
            const V share = w.share[n][s];
            V slope = all(-mean);
            for (int c = 0; c < D; c++)
                slope += g[c] * w.v[c][s];
            slope *= share;
            for (int c = 0; c < D; c++) {
                back[c] += slope * w.k[c][s];
                w.dk[c][s] += slope * q[c];
                w.dv[c][s] += share * g[c];
            }
        }
        sums(back, g);
        for (int c = 0; c < D; c++)
            ((REAL *)w.dq[c])[n] = g[c];
    }
}

__attribute__((noinline)) static void feed(Model &w, const REAL *up, const REAL *read)
{
    for (int s = 0; s < S; s++) {
        V y[D], total = w.logit[s];
        for (int c = 0; c < D; c++)
            y[c] = w.y[c][s];
        for (int j = 0; j < R; j++) {
            V z = {};
            for (int c = 0; c < D; c++)
                z += up[j * D + c] * y[c];
            z = z <= 0 ? V{} : z;
            total += read[j] * z;
            w.h[j][s] = z;
        }
        w.logit[s] = total;
    }
}

__attribute__((noinline)) static void feed_back(Model &w, const REAL *up, const REAL *read)
{
    for (int s = 0; s < S; s++) {
        V y[D], back[D];
        const V g = w.g[s];
        for (int c = 0; c < D; c++) {
            y[c] = w.y[c][s];
            back[c] = w.dy[c][s];
        }
        for (int j = 0; j < R; j++) {
            const V h = w.h[j][s];
            V du = g * read[j];
            du = h > 0 ? du : V{};
            w.read[j] += g * h;
            for (int c = 0; c < D; c++) {
                back[c] += up[j * D + c] * du;
                w.up[j][c] += du * y[c];
            }
        }
        for (int c = 0; c < D; c++)
            w.dy[c][s] = back[c];
    }
}

__attribute__((noinline)) static void copy_out(REAL *to, const V *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = sum(from[i]);
}

extern "C" int loss_and_gradient(
    int64_t members, int64_t tied, const uint8_t *inputs, const uint8_t *targets,
    const REAL *embedding, const REAL *positions, const REAL *query, const REAL *keys,
    const REAL *values, const REAL *out, const REAL *up, const REAL *down,
    const REAL *unembedding, const REAL *bias, REAL *loss,
    REAL *g_embedding, REAL *g_positions, REAL *g_query, REAL *g_keys, REAL *g_values,
    REAL *g_out, REAL *g_up, REAL *g_down, REAL *g_unembedding, REAL *g_bias)
{
    const REAL root = 1 / std::sqrt((REAL)D), each = 1 / (REAL)(B * (int64_t)N);
    Model *scratch = (Model *)aligned_alloc(64, (sizeof(Model) + 63) / 64 * 64);
    if (!scratch)
        return 1;
    Model &w = *scratch;
#ifdef __SSE__  // attention that has made up its mind leaves denormals, a hundred times slower
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
#endif
    for (int64_t m = 0; m < members; m++) {
        const REAL *e = embedding + m * D, *p = positions + m * N * D;
        const REAL *w1 = up + m * R * D, *w2 = down + m * D * R;
        const REAL *wq = query + m * D * D, *wk = keys + m * D * D, *wv = values + m * D * D;
        const REAL *wo = out + m * D * D, *u = tied ? e : unembedding + m * D;
        REAL read[R], g_read[R], g_u[D], g_e[D], total = 0, g_b = 0;
        memset(scratch, 0, sizeof *scratch);
        for (int j = 0; j < R; j++) {
            read[j] = 0;
            for (int c = 0; c < D; c++)
                read[j] += u[c] * w2[c * R + j];
        }
        for (int b = 0; b < B; b++) {
            const uint8_t *xs = inputs + (m * B + b) * N, *ys = targets + (m * B + b) * N;
            for (int n = 0; n < N; n++) {
                ((REAL *)w.bits)[n] = xs[n];
                for (int c = 0; c < D; c++)
                    ((REAL *)w.x[c])[n] = p[n * D + c];
            }
            for (int c = 0; c < D; c++)
                for (int s = 0; s < S; s++)
                    w.x[c][s] += e[c] * w.bits[s];
            apply(wq, w.x, w.q, root);
            apply(wk, w.x, w.k, 1);
            apply(wv, w.x, w.v, 1);
            attend(w);
            apply(wo, w.a, w.y, 1);
            for (int s = 0; s < S; s++) {
                w.logit[s] = all(bias[m]);
                for (int c = 0; c < D; c++) {
                    w.y[c][s] += w.x[c][s];
                    w.logit[s] += u[c] * w.y[c][s];
                }
            }
            feed(w, w1, read);
            for (int s = 0; s < S; s++) {
                const V z = w.logit[s], t = exponential(z > 0 ? -z : z);
                V y = {}, real = {};
                for (int l = 0; l < L && s * L + l < N; l++) {
                    y[l] = ys[s * L + l];
                    real[l] = 1;
                }
                const V one = (z > 0 ? all(1) : t) / (1 + t);
                total += sum(real * ((z > 0 ? z : V{}) - y * z + log_one_plus(t)));
                w.g[s] = real * (one - y) * each;
                g_b += sum(w.g[s]);
            }
            for (int c = 0; c < D; c++)
                for (int s = 0; s < S; s++) {
                    w.u[c] += w.g[s] * w.y[c][s];
                    w.dy[c][s] = u[c] * w.g[s];
                }
            feed_back(w, w1, read);
            add_outer(w.dy, w.a, w.out);
            memset(w.da, 0, sizeof w.da);
            add_transposed(wo, w.dy, w.da);
            attend_back(w);
            for (int c = 0; c < D; c++)
                for (int s = 0; s < S; s++)
                    w.dq[c][s] *= root;
            add_outer(w.dq, w.x, w.query);
            add_outer(w.dk, w.x, w.key);
            add_outer(w.dv, w.x, w.value);
            add_transposed(wq, w.dq, w.dy);
            add_transposed(wk, w.dk, w.dy);
            add_transposed(wv, w.dv, w.dy);
            for (int c = 0; c < D; c++)
                for (int s = 0; s < S; s++) {
                    w.e[c] += w.dy[c][s] * w.bits[s];
                    w.gp[c][s] += w.dy[c][s];
                }
        }
        loss[m] = total * each;
        g_bias[m] = g_b;
        copy_out(g_query + m * D * D, w.query[0], D * D);
        copy_out(g_keys + m * D * D, w.key[0], D * D);
        copy_out(g_values + m * D * D, w.value[0], D * D);
        copy_out(g_out + m * D * D, w.out[0], D * D);
        copy_out(g_up + m * R * D, w.up[0], R * D);
        copy_out(g_read, w.read, R);
        copy_out(g_u, w.u, D);
        copy_out(g_e, w.e, D);
        for (int c = 0; c < D; c++) {
            for (int j = 0; j < R; j++) {
                g_down[(m * D + c) * R + j] = u[c] * g_read[j];
                g_u[c] += w2[c * R + j] * g_read[j];
            }
            for (int n = 0; n < N; n++)
                g_positions[(m * N + n) * D + c] = ((REAL *)w.gp[c])[n];
            g_embedding[m * D + c] = tied ? g_e[c] + g_u[c] : g_e[c];
            if (!tied)
                g_unembedding[m * D + c] = g_u[c];
        }
    }
#ifdef __SSE__
    _mm_setcsr(mode);
#endif
    free(scratch);
    return 0;
}
