// Loss and gradient of the papers' single-layer transformer on batches of binary sequences.
//
// The equations are those of transformer.py (one layer, one head, softmax attention, ReLU, binary
// logit, learned positions) and their chain rule. Sizes are compile-time constants: D, R (width),
// N (length), B (batch) and REAL. Positions are the fastest axis of every activation, in vectors
// as wide as the machine's. One call does `members` models one after the other.
//
// A token is p_n or p_n + e, so that whatever is linear in it (queries, keys, values, and the
// gradients of their matrices) is done once per model, on p and e, and not once per sequence.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#if defined __AVX512F__
constexpr int BYTES = 64;
#elif defined __AVX__
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
constexpr bool SINGLE = sizeof(REAL) == 4;
template <bool> struct Integer { typedef int64_t type; };
template <> struct Integer<true> { typedef int32_t type; };
typedef Integer<SINGLE>::type INT;
typedef REAL V __attribute__((vector_size(BYTES)));
typedef INT VI __attribute__((vector_size(BYTES)));
constexpr int L = BYTES / sizeof(REAL), S = (N + L - 1) / L;  // lanes, vectors along the positions
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

// The transpose of an L x L block: blocks of `HALF` swap across the diagonal, then their inside.
template <int HALF> static inline void transpose(V *m)
{
    const VI lane = lanes(), second = (lane & HALF) != 0, other = lane ^ HALF;
    for (int i = 0; i < L; i++)
        if (!(i & HALF)) {
            const V a = m[i], b = m[i | HALF];
            m[i] = __builtin_shuffle(a, b, second ? other + L : lane);
            m[i | HALF] = __builtin_shuffle(a, b, second ? lane + L : other);
        }
    if constexpr (HALF > 1)
        transpose<HALF / 2>(m);
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
    const V shifted = x * (REAL)1.4426950408889634 + big, k = shifted - big;
    V r = (x - k * high) - k * low, y = all((REAL)inverse_factorial[terms]);
    for (int i = terms - 1; i >= 0; i--)
        y = y * r + (REAL)inverse_factorial[i];
    const VI two = ((VI)shifted + (SINGLE ? 127 : 1023)) << (SINGLE ? 23 : 52);  // k is its low bits
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
    Row p[D], qp[D], kp[D], vp[D];                           // positions, and what is made of them
    Row bits, target, real, g, logit, scale;                 // of a sequence
    Row q[D], k[D], v[D], a[D], y[D], h[R];
    Row dq[D], dk[D], dv[D], da[D], dy[D];
    Row sum_q[D], sum_k[D], sum_v[D], sum_y[D];              // gradients over the batch,
    V ones_q[D], ones_k[D], ones_v[D], ones_y[D];            // and over the tokens that are ones
    V out[D][D], up[R][D], read[R], u[D];
    V share[S][S * L];  // e^(score - top) of a query in lane l of vector s, by key
};

static inline REAL at(const Row &row, int n) { return ((const REAL *)row)[n]; }

// out += M in, and out += Mᵀ in, for D x D matrices M.
__attribute__((noinline)) static void add_product(const REAL *m, const Row *in, Row *out)
{
    for (int s = 0; s < S; s++)
        for (int c = 0; c < D; c++) {
            V total = out[c][s];
            for (int k = 0; k < D; k++)
                total += m[c * D + k] * in[k][s];
            out[c][s] = total;
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

// Queries lie in the lanes and keys are taken one by one, so that nothing is summed over lanes.
__attribute__((noinline)) static void attend(Model &w)
{
    const VI lane = lanes();
    for (int s = 0; s < S; s++) {
        const int diagonal = s * L, keys = diagonal + L < N ? diagonal + L : N;
        V *share = w.share[s], top = all(-INFINITY), total = {}, q[D], mixed[D] = {};
        for (int c = 0; c < D; c++)
            q[c] = w.q[c][s];
        for (int i = 0; i < keys; i++) {
            V score = {};
            for (int c = 0; c < D; c++)
                score += q[c] * at(w.k[c], i);
            if (i >= diagonal)
                score = lane >= i - diagonal ? score : all(-INFINITY);
            top = score > top ? score : top;
            share[i] = score;
        }
        for (int i = 0; i < keys; i++) {
            V part = exponential(share[i] - top);
            if (i >= diagonal)
                part = lane >= i - diagonal ? part : V{};
            total += part;
            for (int c = 0; c < D; c++)
                mixed[c] += part * at(w.v[c], i);
            share[i] = part;
        }
        w.scale[s] = 1 / total;
        for (int c = 0; c < D; c++)
            w.a[c][s] = mixed[c] * w.scale[s];
    }
}

// With g = ∂/∂a and A the shares: ∂/∂score = A (g·v − g·a), whose sums over keys give ∂/∂q and,
// transposed block by block, those over queries ∂/∂k and ∂/∂v.
__attribute__((noinline)) static void attend_back(Model &w)
{
    memset(w.dk, 0, sizeof w.dk);
    memset(w.dv, 0, sizeof w.dv);
    for (int s = 0; s < S; s++) {
        V mean = {}, g[D], back[D] = {};
        for (int c = 0; c < D; c++) {
            g[c] = w.da[c][s] *= w.scale[s];
            mean += g[c] * w.a[c][s];
        }
        for (int t = 0; t <= s; t++) {
            V slope[L], share[L], dk[D], dv[D];
            for (int l = 0; l < L; l++) {
                const int i = t * L + l;
                V z = -mean;
                for (int c = 0; c < D; c++)
                    z += g[c] * at(w.v[c], i);
                share[l] = w.share[s][i];
                z *= share[l];
                for (int c = 0; c < D; c++)
                    back[c] += z * at(w.k[c], i);
                slope[l] = z;
            }
            transpose<L / 2>(slope);
            transpose<L / 2>(share);
            for (int c = 0; c < D; c++) {
                dk[c] = w.dk[c][t];
                dv[c] = w.dv[c][t];
            }
            for (int l = 0; l < L; l++)
                for (int c = 0; c < D; c++) {
                    dk[c] += slope[l] * at(w.q[c], s * L + l);
                    dv[c] += share[l] * at(w.da[c], s * L + l);
                }
            for (int c = 0; c < D; c++) {
                w.dk[c][t] = dk[c];
                w.dv[c][t] = dv[c];
            }
        }
        for (int c = 0; c < D; c++)
            w.dq[c][s] = back[c];
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
        V back[D];
        const V g = w.g[s];
        for (int c = 0; c < D; c++)
            back[c] = w.dy[c][s];
        for (int j = 0; j < R; j++) {
            const V h = w.h[j][s];
            V du = g * read[j];
            du = h > 0 ? du : V{};
            w.read[j] += g * h;
            for (int c = 0; c < D; c++)
                back[c] += up[j * D + c] * du;
            w.h[j][s] = du;
        }
        for (int c = 0; c < D; c++)
            w.dy[c][s] = back[c];
    }
    for (int j = 0; j < R; j++)
        for (int c = 0; c < D; c++) {
            V total = w.up[j][c];
            for (int s = 0; s < S; s++)
                total += w.h[j][s] * w.y[c][s];
            w.up[j][c] = total;
        }
}

__attribute__((noinline)) static void copy_out(REAL *to, const V *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = sum(from[i]);
}

// Over one sequence's gradient of queries, keys, values or tokens.
static inline void gather(const Row *gradient, const Row &bits, Row *total, V *ones)
{
    for (int c = 0; c < D; c++)
        for (int s = 0; s < S; s++) {
            total[c][s] += gradient[c][s];
            ones[c] += gradient[c][s] * bits[s];
        }
}

// Once the batch is through: from z = scale M (p + e x), the gradients of M, p and e.
__attribute__((noinline)) static void through_matrix(
    Model &w, const REAL *m, REAL scale, Row *total, const V *ones, const REAL *e, REAL *g_m,
    REAL *g_e)
{
    V products[D][D] = {};
    for (int c = 0; c < D; c++)
        for (int s = 0; s < S; s++)
            total[c][s] *= scale;
    add_outer(total, w.p, products);
    add_transposed(m, total, w.sum_y);
    for (int c = 0; c < D; c++) {
        const REAL one = scale * sum(ones[c]);
        for (int k = 0; k < D; k++) {
            g_m[c * D + k] = sum(products[c][k]) + one * e[k];
            g_e[k] += m[c * D + k] * one;
        }
    }
}

// out = scale M p, and the same of e.
static void through_tokens(const Model &w, const REAL *m, REAL scale, const REAL *e, Row *out,
                           REAL *of_e)
{
    add_product(m, w.p, out);
    for (int c = 0; c < D; c++) {
        of_e[c] = 0;
        for (int k = 0; k < D; k++)
            of_e[c] += scale * m[c * D + k] * e[k];
        for (int s = 0; s < S; s++)
            out[c][s] *= scale;
    }
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
    memset(scratch->share, 0, sizeof scratch->share);
#ifdef __SSE__  // attention that has made up its mind leaves denormals, a hundred times slower
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
#endif
    for (int64_t m = 0; m < members; m++) {
        const REAL *e = embedding + m * D, *p = positions + m * N * D;
        const REAL *w1 = up + m * R * D, *w2 = down + m * D * R;
        const REAL *wq = query + m * D * D, *wk = keys + m * D * D, *wv = values + m * D * D;
        const REAL *wo = out + m * D * D, *u = tied ? e : unembedding + m * D;
        REAL read[R], g_read[R], g_u[D], g_e[D], q_e[D], k_e[D], v_e[D], total = 0, g_b = 0;
        memset(scratch, 0, offsetof(Model, share));
        for (int j = 0; j < R; j++) {
            read[j] = 0;
            for (int c = 0; c < D; c++)
                read[j] += u[c] * w2[c * R + j];
        }
        for (int n = 0; n < N; n++) {
            ((REAL *)w.real)[n] = 1;
            for (int c = 0; c < D; c++)
                ((REAL *)w.p[c])[n] = p[n * D + c];
        }
        through_tokens(w, wq, root, e, w.qp, q_e);
        through_tokens(w, wk, 1, e, w.kp, k_e);
        through_tokens(w, wv, 1, e, w.vp, v_e);
        for (int b = 0; b < B; b++) {
            const uint8_t *xs = inputs + (m * B + b) * N, *ys = targets + (m * B + b) * N;
            for (int n = 0; n < N; n++) {
                ((REAL *)w.bits)[n] = xs[n];
                ((REAL *)w.target)[n] = ys[n];
            }
            for (int c = 0; c < D; c++)
                for (int s = 0; s < S; s++) {
                    w.q[c][s] = w.qp[c][s] + q_e[c] * w.bits[s];
                    w.k[c][s] = w.kp[c][s] + k_e[c] * w.bits[s];
                    w.v[c][s] = w.vp[c][s] + v_e[c] * w.bits[s];
                    w.y[c][s] = w.p[c][s] + e[c] * w.bits[s];
                }
            attend(w);
            add_product(wo, w.a, w.y);
            for (int s = 0; s < S; s++) {
                w.logit[s] = all(bias[m]);
                for (int c = 0; c < D; c++)
                    w.logit[s] += u[c] * w.y[c][s];
            }
            feed(w, w1, read);
            for (int s = 0; s < S; s++) {
                const V z = w.logit[s], t = exponential(z > 0 ? -z : z), y = w.target[s];
                const V one = (z > 0 ? all(1) : t) / (1 + t);
                total += sum(w.real[s] * ((z > 0 ? z : V{}) - y * z + log_one_plus(t)));
                w.g[s] = w.real[s] * (one - y) * each;
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
            gather(w.dq, w.bits, w.sum_q, w.ones_q);
            gather(w.dk, w.bits, w.sum_k, w.ones_k);
            gather(w.dv, w.bits, w.sum_v, w.ones_v);
            gather(w.dy, w.bits, w.sum_y, w.ones_y);
        }
        loss[m] = total * each;
        g_bias[m] = g_b;
        copy_out(g_e, w.ones_y, D);
        through_matrix(w, wq, root, w.sum_q, w.ones_q, e, g_query + m * D * D, g_e);
        through_matrix(w, wk, 1, w.sum_k, w.ones_k, e, g_keys + m * D * D, g_e);
        through_matrix(w, wv, 1, w.sum_v, w.ones_v, e, g_values + m * D * D, g_e);
        copy_out(g_out + m * D * D, w.out[0], D * D);
        copy_out(g_up + m * R * D, w.up[0], R * D);
        copy_out(g_read, w.read, R);
        copy_out(g_u, w.u, D);
        for (int c = 0; c < D; c++) {
            for (int j = 0; j < R; j++) {
                g_down[(m * D + c) * R + j] = u[c] * g_read[j];
                g_u[c] += w2[c * R + j] * g_read[j];
            }
            for (int n = 0; n < N; n++)
                g_positions[(m * N + n) * D + c] = at(w.sum_y[c], n);
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
