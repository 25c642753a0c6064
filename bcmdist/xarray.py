"""Fields of xarray data sets; importing this module adds their accessor `bcm`. See `bcmdist.api.maps.maps`."""

from bcmdist.api.maps.accessor import Accessor as Accessor
from bcmdist.api.maps.maps import average as average
from bcmdist.api.maps.maps import fill as fill
from bcmdist.api.maps.maps import fit as fit
from bcmdist.api.maps.maps import on_sphere as on_sphere
from bcmdist.api.maps.maps import predict as predict
from bcmdist.api.maps.maps import predict_to_zarr as predict_to_zarr
