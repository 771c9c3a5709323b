_base_ = ['mmdet::pascal_voc/faster-rcnn_r50_fpn_1x_voc0712.py']
