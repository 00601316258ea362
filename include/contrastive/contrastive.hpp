// The whole library: contrastive losses on Eigen matrices, with hand-derived gradients.
#ifndef CONTRASTIVE_CONTRASTIVE_HPP
#define CONTRASTIVE_CONTRASTIVE_HPP

#include "alignment_uniformity.hpp"
#include "clip.hpp"
#include "hard_negatives.hpp"
#include "info_nce.hpp"
#include "mutual_information.hpp"
#include "options.hpp"
#include "results.hpp"
#include "retrieval.hpp"
#include "siglip.hpp"
#include "temperature.hpp"
#include "triplet.hpp"
#include "version.hpp"
#include "workspace.hpp"

#endif  // CONTRASTIVE_CONTRASTIVE_HPP
